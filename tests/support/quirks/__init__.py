"""Models that show upstream's faults, each under the name of its row in the tables of quirks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import field, frozen
from torch import nn

from etdev.schema.fault import Fault
from support.zoo import Parts

Make = Callable[[], "Repro"]
# The modules beside this one that hold repros.
CONCERNS = (
    *("interface", "state", "control_flow", "memory_format", "scalars", "sizes", "emission"),
    *("kernels", "xnnpack", "quantised"),
)
REPROS: dict[str, Make] = {}


@frozen(eq=False)
class Repro:
    """A model that plain ExecuTorch lowers or runs wrongly.

    Args:
        model: The module, or a module for each method.
        calls: The inputs of each call. With several methods, pairs of a method's name and its
            inputs.
        example: The inputs to export with, if they are not those of the first call.
        dynamic_shapes: As torch.export.export takes it.
        backend: `portable`, `xnnpack` or `openvino`.
        expects: What comes of it: `wrong` values, an `error`, a `crash` or a `hang`.
        strict: Export it with torch.export's strict mode.
        gradients: Export it with gradients enabled.
        exceptions: Ops outside Core ATen that the runtime has kernels for.
        quantised: Load the portable kernels of quantised ops.
        undefined: It may be right by luck, as of memory that nothing was written to.
        ranges: The smallest dynamic sizes of the edge program are those that were exported.
        fault: The fault, of a repro without a row in the table.
        tolerance: The largest difference from eager PyTorch, absolute and relative.
    """

    model: nn.Module | Mapping[str, nn.Module]
    calls: Sequence[Any]
    example: tuple[Any, ...] | None = None
    dynamic_shapes: Any = None
    backend: str = "portable"
    expects: str = "wrong"
    strict: bool = False
    gradients: bool = False
    exceptions: Sequence[Any] = ()
    quantised: bool = False
    undefined: bool = False
    ranges: bool = False
    fault: Fault = field(factory=lambda: Fault(upstream=""))
    tolerance: float = 1e-4

    @property
    def methods(self) -> dict[str, nn.Module]:
        """The module of each method."""
        return dict(self.model) if isinstance(self.model, Mapping) else {"forward": self.model}

    @property
    def steps(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The method and the inputs of each call."""
        several = isinstance(self.model, Mapping)
        pairs = self.calls if several else [("forward", inputs) for inputs in self.calls]
        return [(name, given if isinstance(given, tuple) else (given,)) for name, given in pairs]

    @property
    def examples(self) -> dict[str, tuple[Any, ...]]:
        """The inputs that each method is exported with."""
        return {"forward": self.example} if self.example else dict(reversed(self.steps))


def repro(function: Make) -> Make:
    """Register a function that makes a repro, under its name with hyphens."""
    name = function.__name__.replace("_", "-")
    assert name not in REPROS, name
    REPROS[name] = function
    return function


def model(function: Callable[..., Any], **parts: Any) -> nn.Module:
    """Make a function of a module and its inputs into a module with these parts."""
    return Parts(function, parts).eval()


def names() -> list[str]:
    """Import all modules of repros; return the names of the repros."""
    for concern in CONCERNS:
        importlib.import_module(f"support.quirks.{concern}")
    return list(REPROS)


def load(name: str) -> Repro:
    """Make a repro, with the same random weights in every process."""
    names()
    torch.manual_seed(0)
    return REPROS[name]()
