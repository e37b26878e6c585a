"""One method of a model that a user gives, before it is exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from etdev.errors import SourceError

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram


@frozen(eq=False)
class Method:
    """One method of a model, with what `torch.export.export` takes."""

    name: str
    model: nn.Module | ExportedProgram
    # None takes those of the program.
    inputs: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] = field(factory=dict)
    dynamic_shapes: Any = None

    def example(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the example inputs, positional and by keyword."""
        if self.inputs is not None:
            return self.inputs, self.kwargs
        # A module has no such attribute, or one of its own.
        known = getattr(self.model, "example_inputs", None)
        if not isinstance(known, tuple) or not hasattr(self.model, "graph_signature"):
            raise SourceError(self.name, "has no example inputs", "give inputs")
        arguments, keywords = known
        return tuple(arguments), dict(keywords)
