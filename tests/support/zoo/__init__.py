"""A zoo of small adversarial models, a file for each thing that is hard about them."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import torch
from attrs import field, frozen
from torch import nn


@frozen(eq=False)
class Animal:
    """One model of the zoo.

    Args:
        build: Makes the module.
        calls: The inputs of its calls, the example first; more are made like them.
        edges: Call it with NaN, infinities and the edges of integers, too.
        dynamic: Its dynamic shapes, as torch.export takes them.
        tolerance: Allowed error, relative to the largest value; None takes that of its dtypes.
    """

    build: Callable[[], nn.Module]
    calls: list[tuple[Any, ...]]
    edges: bool = True
    dynamic: Any = None
    tolerance: float | None = None


@frozen
class Zoo:
    """The models of one file, by name."""

    animals: dict[str, Animal] = field(factory=dict)

    def model(
        self,
        *calls: Any,
        edges: bool = True,
        dynamic: Any = None,
        tolerance: float | None = None,
        **parts: Any,
    ) -> Callable[[Any], Any]:
        """Add a function of a module with some parts, its buffers, parameters or submodules.

        Args:
            calls: Inputs: of each call a tuple, or a tensor if it has one input.
            edges: As for Animal, like the next two.
            dynamic: The dynamic shapes of its inputs.
            tolerance: Allowed error.
            parts: By name.
        """
        inputs = [call if isinstance(call, tuple) else (call,) for call in calls]

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            def build() -> nn.Module:
                return Parts(function, copy.deepcopy(parts)).eval()

            own = dynamic if isinstance(dynamic, tuple) else (dynamic,)
            # `forward` takes them as one tuple.
            shapes = (own,) if dynamic else None
            self.animals[function.__name__] = Animal(build, inputs, edges, shapes, tolerance)
            return function

        return add


def animals(*places: str) -> dict[str, Animal]:
    """Return the models of some files, such as `state.counter`."""
    return {
        f"{place}.{name}": animal
        for place in places
        for name, animal in importlib.import_module(f"support.zoo.{place}").ZOO.animals.items()
    }


class Parts(nn.Module):
    """A function of a module and its inputs."""

    def __init__(self, function: Callable[..., Any], parts: dict[str, Any]) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random numbers that are the same in every process."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
