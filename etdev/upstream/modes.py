"""Modes of torch that see each op, also those inside of control flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from etdev.upstream.operators import OpOverload


@define(eq=False, slots=False)
class OpMode(TorchDispatchMode):
    """A mode in which `call` calls the ops, and those of branches, loops and maps."""

    supports_higher_order_operators = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __attrs_pre_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call an op, or control flow, whose functions torch would call outside of the mode."""
        if isinstance(op, OpOverload):
            return self.call(op, args, kwargs or {})
        return op(*(self._inside(arg) if _is_function(arg) else arg for arg in args))

    def call(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an op."""
        return op(*args, **kwargs)

    def _inside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            with self:
                return function(*args)

        return called


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, Tensor)
