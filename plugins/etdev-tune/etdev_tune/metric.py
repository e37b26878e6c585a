"""A user's metric, such as the accuracy of a model."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from attrs import field, frozen
from blake3 import blake3

from etdev.errors import TuneError, first_line


@frozen(eq=False)
class Call:
    """A call in eager PyTorch: its flat inputs and outputs."""

    inputs: Sequence[Any]
    outputs: Sequence[Any]


@frozen(eq=False)
class Metric:
    """A user's function of outputs, of eager PyTorch's and of inputs, by position.

    Each is a list of calls: the tensor of a call, or a tuple if it has several. The function may
    take the first or the first two alone, and have settings with values by default. More is better.
    """

    function: Callable[..., Any] = field(repr=False)
    digest: str = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        try:
            text = inspect.getsource(inspect.getmodule(self.function) or self.function)
        except (OSError, TypeError):
            text = ""
        object.__setattr__(self, "digest", blake3(f"{self.name}\n{text}".encode()).hexdigest())

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.function, "__name__", "metric")

    def __call__(self, outputs: Sequence[Sequence[Any]], calls: Sequence[Call]) -> float:
        """Return the figure; a TuneError if the function fails or returns no finite number."""
        wanted = [_one(call.outputs) for call in calls]
        values = list(map(_one, outputs)), wanted, [_one(call.inputs) for call in calls]
        try:
            figure = float(self.function(*values[: _taken(self.function)]))
        except Exception as error:
            cure = "it is called with the outputs, those of eager PyTorch, and the inputs"
            raise TuneError(self.name, f"raised {first_line(error)}", cure) from error
        if not math.isfinite(figure):
            raise TuneError(self.name, f"returned {figure}", "return a finite number")
        return figure


def _one(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    return known[0] if len(known) == 1 else tuple(known)


def _taken(function: Callable[..., Any]) -> int:
    """Return how many arguments a function takes; those such as `k=5` are the user's settings."""
    known = inspect.signature(function).parameters.values()
    named = [one for one in known if one.kind is one.POSITIONAL_OR_KEYWORD]
    return max(1, sum(one.default is one.empty or one.default is None for one in named))
