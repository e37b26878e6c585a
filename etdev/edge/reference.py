"""References: the methods of a model in eager PyTorch, as they were when they were exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram

from etdev.edge.calls import duplicate, written
from etdev.edge.source import Method
from etdev.errors import SourceError
from etdev.upstream.trees import pytree


@frozen(eq=False)
class Reference:
    """What a method of a .pte is compared with.

    Args:
        method: The method as it was given.
        program: Its exported program.
        state: The values that its mutated buffers and parameters had, by name. Copies, since eager
            calls of the caller's module change them.
    """

    method: Method
    program: ExportedProgram
    state: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, method: Method, program: ExportedProgram) -> Reference:
        """Remember the state of a method that was just exported."""
        values = {**program.constants, **program.state_dict}
        names = [name for name in written(program) if name in values]
        return cls(method, program, {name: values[name].detach().clone() for name in names})

    def module(self) -> torch.nn.Module:
        """Copy the module, with its state as it was; parameters that nothing writes are shared."""
        model = self.method.model
        if isinstance(model, ExportedProgram):
            return self._restored(duplicate(model.module(), self.state))
        try:
            return self._restored(duplicate(model, self.state))
        except Exception:
            # Some modules can't be copied, such as those that hold locks or generators.
            return self._restored(duplicate(self.program.module(), self.state))

    def example(self) -> tuple[list[Any], pytree.TreeSpec]:
        """Leaves and structure of the example inputs, in the order of the program's inputs."""
        leaves, structure = pytree.tree_flatten(
            self.program.example_inputs or self.method.example()
        )
        return leaves, structure

    def given(self, inputs: Any) -> list[list[Any]]:
        """The leaves of some inputs: arguments as a tuple, or a list of such tuples, or None.

        Raises:
            SourceError: They are not the arguments of this method.
        """
        if inputs is None:
            return []
        calls = inputs if isinstance(inputs, list) else [inputs]
        return [self._leaves(call) for call in calls]

    def _leaves(self, arguments: Any) -> list[Any]:
        own = (arguments,) if isinstance(arguments, torch.Tensor) else tuple(arguments)
        known = self.program.example_inputs
        keywords = known[1] if known else self.method.kwargs
        leaves, structure = pytree.tree_flatten((own, dict(keywords)))
        if known and structure != self.example()[1]:
            raise SourceError(self.method.name, "the inputs are not those it takes", "check inputs")
        return leaves

    def _restored(self, module: torch.nn.Module) -> torch.nn.Module:
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for name, value in self.state.items():
                if name in tensors:
                    tensors[name].copy_(value)
        return module
