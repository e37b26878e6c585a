"""Sessions: series of calls of a method in eager PyTorch, which a .pte has to repeat."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from etdev.edge.reference import Reference, called, duplicate
from etdev.edge.simplify.folding import is_random as draws
from etdev.errors import VerifyError
from etdev.graph.nodes import graph_modules
from etdev.runtime.compare import Tolerance, mismatch

# The edge values of float dtypes. The last ones are tried by default; a state may keep a NaN.
_EDGES = ("0", "-0", "max", "min", "tiny", "inf", "-inf", "nan")
_NOT_FINITE = 3

# The dtypes that boundaries of `bucketize` and `searchsorted` usually have.
_BOUNDARIES = (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64)

# torch and ExecuTorch write a missing bound in several ways, all of them above this.
_UNBOUNDED = 2**40


@frozen(eq=False)
class Call:
    """A call in eager PyTorch: flat inputs, outputs, inputs after it, and the state before it.

    Args:
        edge: The edge value that its inputs have; empty for ordinary inputs.
    """

    inputs: Sequence[Any]
    outputs: Sequence[Any]
    after: Sequence[Any]
    state: Mapping[str, Any]
    edge: str = ""


@define(eq=False)
class Session:
    """Consecutive calls of a method in eager PyTorch, each with the state that the last one left.

    A .pte has to repeat them in one loaded method.
    """

    reference: Reference
    samples: Samples
    calls: list[Call] = field(factory=list, init=False)
    _module: torch.nn.Module = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._module = self.reference.module()

    def call(self, attempts: Iterable[Sequence[Any]], edge: str = "") -> None:
        """Call the method with the first inputs that eager PyTorch takes, if it takes any.

        Each attempt has a copy of the module, because a call that fails may have written to it.
        """
        state, (_, structure) = self.reference.state, self.reference.example()
        held = chain(self._module.named_parameters(), self._module.named_buffers())
        before = {name: value.detach().clone() for name, value in held if name in state}
        for inputs in attempts:
            module = duplicate(self._module, state)
            try:
                outputs, after = called(module, inputs, structure)
            except Exception:
                continue
            self.calls.append(Call(inputs, outputs, after, before, edge))
            self._module = module
            return

    def repeat(self, call: Call) -> None:
        """Call the method with the inputs of an earlier call, whose values a state may change."""
        if self.reference.state:
            self.call([call.inputs])
        else:
            self.calls.append(call)

    def try_edges(self, all_values: bool) -> None:
        """Call the method with NaN and infinities, or with all edge values, and sizes of 0."""
        for edge, attempts in self.samples.edges(all_values):
            self.call(attempts, edge)


def session_of(
    reference: Reference, given: Sequence[Sequence[Any]], steps: int, resized: bool = False
) -> Session:
    """Call a method in eager PyTorch with the given inputs, and with fresh ones up to `steps`.

    With `resized`, each fresh call of a method with dynamic sizes is made twice, and the first one
    again at the end: sizes grow, shrink, and stay as they are after both.
    """
    example, _ = reference.example()
    samples = Samples(reference.program, list(given[-1]) if given else example)
    session = Session(reference, samples)
    for inputs in given:
        session.call([inputs])
    for step in range(len(given), steps):
        session.call(samples.attempts(step))
        if step and resized and samples.is_dynamic and session.calls:
            session.repeat(session.calls[-1])
    if not session.calls:
        which = "the given" if given else "its example"
        what = f"eager PyTorch can't run {which} inputs"
        raise VerifyError(f"method {reference.method.name!r}", what, "give inputs that it takes")
    if len(session.calls) > max(steps, len(given)):
        session.repeat(session.calls[0])
    return session


def interleaved(sessions: Mapping[str, Session]) -> list[tuple[str, Call]]:
    """Return the calls of all methods in a random order that keeps each method's own.

    Calls at edge values come last.
    """
    calls = {name: [c for c in s.calls if not c.edge] for name, s in sessions.items()}
    turns = [name for name, own in calls.items() for _ in own]
    random.Random(0).shuffle(turns)
    left = {name: iter(own) for name, own in calls.items()}
    mixed = [(name, next(left[name])) for name in turns]
    return mixed + [
        (name, c) for name, session in sessions.items() for c in session.calls if c.edge
    ]


def is_random(reference: Reference) -> bool:
    """Return True if two calls differ that are equal but for the seed of random numbers."""
    graphs = [module.graph for module in graph_modules(reference.program.graph_module)]
    if not any(draws(node) for graph in graphs for node in graph.nodes):
        return False
    leaves, _ = reference.example()
    results = []
    with torch.random.fork_rng(devices=[]):
        for seed in range(2):
            torch.manual_seed(seed)
            try:
                results.append(reference.call(leaves)[0])
            except Exception:
                return False
    first, second = results
    return mismatch(first, second, Tolerance(1e-9)) is not None


@define(eq=False)
class Samples:
    """A generator of inputs for the calls of a method.

    The first call has the example inputs. Later ones have fresh values between the smallest and the
    largest of the example, so that an index stays one. Every dynamic size is first at its upper
    bound, then at its lower one, then in between.
    """

    program: ExportedProgram
    example: Sequence[Any]
    _generator: torch.Generator = field(factory=lambda: torch.Generator().manual_seed(0))

    def attempts(self, step: int) -> Iterator[list[Any]]:
        """Yield inputs for a step, each closer to the example than the one before.

        Nothing says which values a model accepts: a position may have to be below a length.
        """
        if step:
            yield self._fresh(self._sizes(step))
            yield [self._like(value, integers=False) for value in self.example]
        yield list(self.example)

    @property
    def is_dynamic(self) -> bool:
        """Return True if an input has a dynamic size."""
        return bool(self._given_sizes())

    def edges(self, all_values: bool) -> Iterator[tuple[str, list[list[Any]]]]:
        """Yield edge values with attempts at inputs that have them in some places.

        NaN and infinities leave integers as they are in the example, since they may be indices; so
        does the second attempt at any other value. With the last inputs, all dynamic sizes are at
        their minimum, if one of them may be 0.
        """
        floats = [v for v in self.example if isinstance(v, Tensor) and v.is_floating_point()]
        first = 0 if all_values else len(_EDGES) - (_NOT_FINITE if floats else 0)
        for index in range(first, len(_EDGES)):
            attempts = (True, False) if all_values else (False,)
            yield (
                _EDGES[index],
                [
                    [self._sprinkled(v, index, integers) for v in self.example]
                    for integers in attempts
                ],
            )
        least = self._least_sizes()
        if 0 in least.values():
            yield "size 0", [self._fresh(least)]

    def _fresh(self, sizes: dict[Any, int]) -> list[Any]:
        values = self._values()
        if len(values) != len(self.example):
            return [self._like(value) for value in self.example]
        return [
            self._like(value, _resolved(fake, sizes))
            for value, fake in zip(self.example, values, strict=True)
        ]

    def _values(self) -> list[Any]:
        """Return the fake value of every input, with its symbolic sizes."""
        fakes = {node.name: node.meta.get("val") for node in self.program.graph.nodes}
        specs = self.program.graph_signature.input_specs
        inputs = [spec.arg for spec in specs if spec.kind == InputKind.USER_INPUT]
        return [fakes.get(getattr(argument, "name", "")) for argument in inputs]

    def _sizes(self, step: int) -> dict[Any, int]:
        """Choose a value for every symbolic size."""
        sizes, given = {}, self._given_sizes()
        for symbol, bounds in self.program.range_constraints.items():
            low = max(int(bounds.lower), 1) if bounds.lower > -_UNBOUNDED else 1
            upper = int(bounds.upper) if bounds.upper < _UNBOUNDED else given.get(symbol, 2)
            high = max(low, upper)
            between = int(torch.randint(low, high + 1, (), generator=self._generator))
            sizes[symbol] = {1: high, 2: low}.get(step, between)
        return sizes

    def _least_sizes(self) -> dict[Any, int]:
        """Return the minimum of every symbolic size of the inputs."""
        ranges = self.program.range_constraints
        symbols = {symbol for size in self._given_sizes() for symbol in size.free_symbols}
        known = {symbol: ranges[symbol].lower for symbol in symbols if symbol in ranges}
        return {symbol: int(lower) if lower > 0 else 0 for symbol, lower in known.items()}

    def _given_sizes(self) -> dict[Any, int]:
        """Return the symbolic sizes of the inputs, with the numbers that the example has."""
        pairs = zip(self.example, self._values(), strict=False)
        tensors = [(a, b) for a, b in pairs if isinstance(a, Tensor) and isinstance(b, Tensor)]
        sizes: list[tuple[Any, int]] = [
            (size, known)
            for value, fake in tensors
            for size, known in zip(fake.shape, value.shape, strict=False)
        ]
        return {size.node.expr: known for size, known in sizes if isinstance(size, torch.SymInt)}

    def _like(self, value: Any, shape: Any = None, integers: bool = True) -> Any:
        """Make a fresh value like a given one, of another shape if one is given."""
        if not isinstance(value, Tensor):
            return value if shape is None else shape
        sizes = tuple(value.shape) if shape is None else shape
        if value.is_floating_point():
            known = value.detach()[value.isfinite()].to(torch.float64)
            low, high = map(float, known.aminmax()) if known.numel() else (0.0, 0.0)
            # Different numbers show more than the same one in every place.
            low, high = (-2.0, 2.0) if low == high else (low, high)
            made = torch.rand(sizes, generator=self._generator, dtype=torch.float64)
            return _ordered((made * (high - low) + low).to(value.dtype), value)
        if value.is_complex() or (not integers and sizes == tuple(value.shape)):
            return value.clone()
        # torch has no minimum of most unsigned integers.
        numbers = value.numpy(force=True)
        low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
        if value.dtype == torch.bool:
            low, high = 0, 1
        # randint's end is exclusive, and int64's largest value has no successor.
        high = min(high, torch.iinfo(torch.int64).max - 1)
        made = torch.randint(low, high + 1, sizes, generator=self._generator)
        return _ordered(made.to(value.dtype), value)

    def _sprinkled(self, value: Any, index: int, integers: bool) -> Any:
        """Make a fresh value with an edge value of its dtype in the first and some other places."""
        fresh = self._like(value, integers=integers)
        if not isinstance(fresh, Tensor) or not fresh.numel():
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
        return (0.0, -0.0, facts.max, facts.min, facts.tiny, math.inf, -math.inf, math.nan)
    bounds = torch.iinfo(dtype)
    return (bounds.min, bounds.max, 0, 1, *((-1,) if bounds.min else ()))


def _resolved(fake: Any, sizes: dict[Any, int]) -> Any:
    """Return the shape of a fake tensor, or a symbolic number, with a value for every symbol."""
    if isinstance(fake, Tensor):
        return tuple(_number(size, sizes) for size in fake.shape)
    return _number(fake, sizes) if isinstance(fake, torch.SymInt) else None


def _number(size: Any, sizes: dict[Any, int]) -> int:
    return int(size.node.expr.subs(sizes)) if isinstance(size, torch.SymInt) else int(size)


def _ordered(fresh: Tensor, example: Tensor) -> Tensor:
    """Sort fresh values if the example's ascend, as the boundaries of `bucketize` have to."""
    if not example.dim() or example.shape[-1] < 3 or example.dtype not in _BOUNDARIES:
        return fresh
    ascends = bool((example[..., 1:] > example[..., :-1]).all())
    return fresh.sort(-1).values if ascends else fresh
