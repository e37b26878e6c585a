"""Samples: fresh inputs of a method, like those it was exported with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import define, field
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

# Edge values of floats, where the dtype's own largest and smallest join.
_FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0)

# torch and ExecuTorch write a missing bound in several ways, all of them above this.
_UNBOUNDED = 2**40


@define(eq=False)
class Samples:
    """Makes inputs for the calls of a method.

    The first call has the example inputs. Later ones have fresh values: floats with the spread of
    the example's, integers between its smallest and its largest, so that an index stays one; first
    with every dynamic size at its upper bound, then at its lower one, then in between.

    Args:
        program: The exported program.
        example: Its example inputs, flat.
    """

    program: ExportedProgram
    example: Sequence[Any]
    _generator: torch.Generator = field(factory=lambda: torch.Generator().manual_seed(0))

    def attempts(self, step: int) -> Iterator[list[Any]]:
        """Inputs for a step; what follows the first is closer to the example, if that is refused.

        Nothing says which values a model takes: a position may have to be below a length.
        """
        if step:
            yield self._fresh(self._sizes(step))
            yield [self._like(value, integers=False) for value in self.example]
        yield list(self.example)

    def edges(self) -> Iterator[list[list[Any]]]:
        """For each edge value of the dtypes, inputs that have some of it.

        In the second of each attempts, integers are as in the example: they may be indices. The
        last inputs are as small as dynamic sizes may be, if that is 0.
        """
        for index in range(len(_FLOATS) + 3):
            yield [
                [self._sprinkled(value, index, whole) for value in self.example]
                for whole in (True, False)
            ]
        least = self._least_sizes()
        if 0 in least.values():
            yield [self._fresh(least)]

    def _fresh(self, sizes: dict[Any, int]) -> list[Any]:
        values = self._values()
        if len(values) != len(self.example):
            return [self._like(value) for value in self.example]
        return [
            self._like(value, _resolved(fake, sizes))
            for value, fake in zip(self.example, values, strict=True)
        ]

    def _values(self) -> list[Any]:
        """The fake value of every input, with its symbolic sizes."""
        fakes = {node.name: node.meta.get("val") for node in self.program.graph.nodes}
        specs = self.program.graph_signature.input_specs
        inputs = [spec.arg for spec in specs if spec.kind == InputKind.USER_INPUT]
        return [fakes.get(getattr(argument, "name", "")) for argument in inputs]

    def _sizes(self, step: int) -> dict[Any, int]:
        """A value for every symbolic size."""
        sizes = {}
        for symbol, bounds in self.program.range_constraints.items():
            low = max(int(bounds.lower), 1) if bounds.lower > -_UNBOUNDED else 1
            upper = int(bounds.upper) if bounds.upper < _UNBOUNDED else self._size_of(symbol)
            high = max(low, upper)
            between = int(torch.randint(low, high + 1, (), generator=self._generator))
            sizes[symbol] = {1: high, 2: low}.get(step, between)
        return sizes

    def _least_sizes(self) -> dict[Any, int]:
        """The least value of every symbolic size of the inputs."""
        ranges = self.program.range_constraints
        shapes = [fake.shape for fake in self._values() if isinstance(fake, torch.Tensor)]
        sizes: list[Any] = [
            size for shape in shapes for size in shape if isinstance(size, torch.SymInt)
        ]
        symbols = {symbol for size in sizes for symbol in size.node.expr.free_symbols}
        known = {symbol: ranges[symbol].lower for symbol in symbols if symbol in ranges}
        return {symbol: int(lower) if lower > 0 else 0 for symbol, lower in known.items()}

    def _size_of(self, symbol: Any) -> int:
        """A size without upper bound, in the example."""
        for value, fake in zip(self.example, self._values(), strict=False):
            if isinstance(value, torch.Tensor) and isinstance(fake, torch.Tensor):
                for size, known in zip(fake.shape, value.shape, strict=False):
                    if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                        return int(known)
        return 2

    def _like(self, value: Any, shape: Any = None, integers: bool = True) -> Any:
        """A fresh value like another, of another shape if one is given."""
        if not isinstance(value, torch.Tensor):
            return value if shape is None else shape
        sizes = tuple(value.shape) if shape is None else shape
        if value.is_floating_point():
            return self._floats(value, sizes)
        if value.is_complex() or (not integers and sizes == tuple(value.shape)):
            return value.clone()
        return self._integers(value, sizes)

    def _floats(self, value: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        known = value.detach()[value.isfinite()].to(torch.float64)
        low, high = (float(known.min()), float(known.max())) if known.numel() else (0.0, 0.0)
        if low == high:
            made = torch.randn(sizes, generator=self._generator, dtype=torch.float64)
        elif low < 0:
            spread = torch.randn(sizes, generator=self._generator, dtype=torch.float64)
            made = spread * known.std() + known.mean()
        else:
            made = torch.rand(sizes, generator=self._generator, dtype=torch.float64)
            made = made * (high - low) + low
        return made.to(value.dtype)

    def _integers(self, value: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        if value.dtype == torch.bool:
            return torch.rand(sizes, generator=self._generator) < 0.5
        # torch has no minimum of most unsigned integers.
        numbers = value.numpy(force=True)
        low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
        # randint's end is exclusive, and int64's largest value has no successor.
        high = min(high, torch.iinfo(torch.int64).max - 1)
        made = torch.randint(low, high + 1, sizes, generator=self._generator)
        return made.to(value.dtype)

    def _sprinkled(self, value: Any, index: int, integers: bool) -> Any:
        """A fresh value with an edge value of its dtype at the first place and at some others."""
        fresh = self._like(value, integers=integers)
        if not isinstance(fresh, torch.Tensor) or not fresh.numel():
            return fresh
        if fresh.dtype == torch.bool or fresh.is_complex():
            return fresh
        if not fresh.is_floating_point() and not integers:
            return fresh
        edges = _edges(fresh.dtype)
        places = torch.rand(fresh.shape, generator=self._generator) < 1 / 8
        places.view(-1)[0] = True
        fresh[places] = edges[index % len(edges)]
        return fresh


def _edges(dtype: torch.dtype) -> tuple[Any, ...]:
    if dtype.is_floating_point:
        facts = torch.finfo(dtype)
        return (*_FLOATS, facts.max, facts.min, facts.tiny)
    bounds = torch.iinfo(dtype)
    return (bounds.min, bounds.max, 0, 1, *((-1,) if bounds.min else ()))


def _resolved(fake: Any, sizes: dict[Any, int]) -> Any:
    """The shape of a fake tensor, or a symbolic number, with a value for every symbol."""
    if isinstance(fake, torch.Tensor):
        return tuple(_number(size, sizes) for size in fake.shape)
    return _number(fake, sizes) if isinstance(fake, torch.SymInt) else None


def _number(size: Any, sizes: dict[Any, int]) -> int:
    return int(size.node.expr.subs(sizes)) if isinstance(size, torch.SymInt) else int(size)
