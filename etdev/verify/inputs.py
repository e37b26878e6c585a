"""Inputs for the calls of a method: like its example, in other sizes, far from it, at edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import cycle
from typing import Any, TypeGuard

import torch
from attrs import define, field
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.nodes import calls_in
from etdev.graph.signature import user_inputs
from etdev.graph.symbols import unbacked
from etdev.upstream.operators import overload_of, schema_of
from etdev.upstream.sequences import ascends, reads_sorted
from etdev.upstream.ties import leaves_open
from etdev.upstream.trees import pytree
from etdev.verify.verification import SEED

# The edge values of float dtypes. The last ones are tried by default; a state may keep a NaN.
_EDGES = ("0", "-0", "max", "min", "tiny", "inf", "nan")
_NOT_FINITE = 2

# The dtypes that boundaries of `bucketize` and `searchsorted` usually have.
_BOUNDARIES = (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64)

# The largest values of inputs that are not like the example's: far ones, down to what a model of
# exponents takes, small ones, as small as what norms add to a variance, and huge ones, beyond the
# integers of 32 bits.
_FAR, _SMALL, _HUGE = (1e3, 250.0, 60.0, 15.0), 1e-3, 1e10
# Numbers of a larger range are drawn, not tried in turn.
_RANGE = 4096
# The most draws, the bounds of constants whose multiples are drawn, and those of any program.
DRAWS, _GRID, _HALVES = 16, (1e-3, 1e3), 0.5
# Multiples of whole parts of 1 over this number are exact in each float dtype.
EXACT = 64
# Numbers are equal in float32 if they differ by less than this part.
_ALIKE = 1e-6
# Ops of a table and the numbers of its rows, and those that an integer may keep from ending.
_LOOKUPS, _LOOPS = (torch.ops.aten.embedding.default,), (torch.ops.higher_order.while_loop,)
# Types of the arguments that take a number, as schemas of ops have them.
_NUMBERS = ("Tensor", "number", "Optional[number]")

# The integers of inputs that get other values: none, those between the smallest and the largest of
# several, lone ones too, or equal ones too, and then rows of a table are any of it; or every second
# one is any number of its dtype, up to the huge ones.
_KEPT, _IN_RANGE, _LONE, _EQUAL, _ANY = range(5)

_Change = Callable[[Tensor], Tensor]

# torch and ExecuTorch write a missing bound in several ways, all of them above this.
UNBOUNDED = 2**40


@define(eq=False, slots=False)
class Samples:
    """A generator of inputs for the calls of a method.

    The first call has the example inputs. Later ones have fresh values between the smallest and the
    largest of the example, so that an index stays one; those of every second call are tied, since
    they are whole numbers or eighths, unless PyTorch leaves the order of ties open. A lone integer
    gets others, and integers of a small range come in turn. Every dynamic size is first at its
    upper bound, then at its lower one, then in between: next to these, and beside numbers that the
    program compares, divides or multiplies sizes by.

    Args:
        program: The exported program.
        example: The example inputs.
        huge: Draw floats up to huge ones.
    """

    program: ExportedProgram
    example: Sequence[Any]
    huge: bool = True
    _generator: torch.Generator = field(factory=lambda: torch.Generator().manual_seed(SEED))
    _tried: list[int] = field(factory=list, init=False)
    # The integers that come next, by the example value and the range.
    _turns: dict[tuple[int, ...], Tensor] = field(factory=dict, init=False)

    def attempts(self, step: int) -> Iterator[list[Any]]:
        """Yield inputs for a step, each closer to the example than the one before.

        Nothing says which values a model accepts: a position may have to be below a length.
        """
        if step:
            grid = 0.0 if step % 2 == 0 and self._may_tie else None
            yield from self._attempts({1: max, 2: min}.get(step, self._between), grid, _LONE)
        yield list(self.example)

    def draws(self) -> Iterator[tuple[Iterator[list[Any]], bool]]:
        """Yield attempts at more inputs, and whether rounding may decide what they give.

        All have sizes between the bounds. In turn, they are values like the example's that are
        scaled to about a thousand, to small or to huge ones, have zeros, other signs or one sign,
        and others, multiples of a half or of a constant of the program, or equal rows. Integers are
        any that eager takes, once. Where PyTorch leaves the order of ties open, none are tied.
        """
        tied, levels = self._may_tie, [_EQUAL]
        changes = list(self._changes) if any(map(is_float, self.example)) else []
        grids = cycle([None, *((_HALVES, *constants_of(self.program)) if tied else ())])
        if self._takes_any:
            levels.insert(0, _ANY)
        for turn in range(DRAWS):
            if turn % 2 == 0 and changes:
                yield self._changed(changes.pop(0)), True
                continue
            grid, pairs = next(grids), tied and turn % 3 == 1
            attempts = self._attempts(self._between, grid, *levels)
            levels = [_EQUAL]
            # Rounding decides about multiples of 0.3, such as their floor, but not of 0.5.
            exact = grid is not None and (_exact(grid) * EXACT).is_integer()
            yield map(_paired, attempts) if pairs else attempts, pairs or not exact

    @cached_property
    def _may_tie(self) -> bool:
        """True if values of an input may be equal: PyTorch says the order of ties everywhere."""
        return not open_ties(self.program)

    @property
    def _changes(self) -> Iterator[Sequence[_Change]]:
        """Yield changes of the example's floats, each with those to try where eager refuses it."""
        yield [partial(_scaled, to=-size) for size in _FAR]
        if self._may_tie:
            yield [partial(self._some_times, factor=0.0)]
        yield [partial(_scaled, to=size) for size in _FAR]
        yield [partial(self._some_times, factor=-1.0)]
        yield [partial(_scaled, to=_SMALL)]
        # A maximum of many numbers is rarely negative.
        yield [lambda value: -value.abs()]
        if self.huge:
            yield [partial(_scaled, to=_HUGE)]
        yield [torch.abs]

    def _changed(self, changes: Sequence[_Change]) -> Iterator[list[Any]]:
        resized = [self._fresh(self._between)] if self.is_dynamic else []
        for like in (*resized, list(self.example)):
            for change in changes:
                yield [self._ordered(change(v), v) if is_float(v) else v for v in like]

    def _some_times(self, value: Tensor, factor: float) -> Tensor:
        """Multiply half of the numbers, drawn at random, by a factor."""
        return self._some(value, value * factor)

    def _some(self, value: Tensor, other: Tensor) -> Tensor:
        """Take half of the numbers, drawn at random, from another tensor."""
        return torch.where(torch.rand(value.shape, generator=self._generator) < 1 / 2, other, value)

    def _any(self, dtype: torch.dtype, sizes: Sequence[int], low: int, high: int) -> Tensor:
        """Draw integers of a range, and for every second one any but the dtype's least."""
        most = min(torch.iinfo(dtype).max, int(_HUGE))
        least = max(torch.iinfo(dtype).min, -most)
        made = torch.randint(least, most + 1, sizes, generator=self._generator)
        odd = torch.arange(made.numel()).reshape(sizes) % 2 == 1
        return torch.where(
            odd, torch.randint(low, high + 1, sizes, generator=self._generator), made
        )

    def _attempts(
        self, choose: Callable[[int, int], int], grid: float | None, *levels: int
    ) -> Iterator[list[Any]]:
        for integers in levels:
            yield self._fresh(choose, grid=grid, integers=integers)
        # A lone integer may be a position or a length that has to be what it is.
        yield self._fresh(choose, grid=grid)
        yield [self._like(value, integers=_KEPT, grid=grid) for value in self.example]

    @property
    def is_dynamic(self) -> bool:
        """Return True if an input has a dynamic size."""
        return bool(self._given_sizes)

    def edges(self, all_values: bool) -> Iterator[tuple[str, list[list[Any]]]]:
        """Yield edge values with attempts at inputs that have them in some places.

        NaN and infinities leave integers as they are in the example, since they may be indices; so
        does the second attempt at any other value. With the last inputs, all dynamic sizes are at
        their minimum, if one of them may be 0.
        """
        floats = any(map(is_float, self.example))
        first = 0 if all_values else len(_EDGES) - (_NOT_FINITE if floats else 0)
        for index in range(first, len(_EDGES)):
            attempts = (True, False) if all_values else (False,)
            made = [[self._sprinkled(v, index, some) for v in self.example] for some in attempts]
            yield _EDGES[index], made
        ranges = self.program.range_constraints
        symbols = {symbol for size in self._given_sizes for symbol in size.free_symbols}
        if any(ranges[symbol].lower <= 0 for symbol in symbols if symbol in ranges):
            yield "size 0", [self._fresh(min, least=0, integers=_LONE)]

    def _fresh(self, choose: Callable[[int, int], int], least: int = 1, **how: Any) -> list[Any]:
        """Make fresh values, with a choice between the bounds of every symbolic size."""
        sizes, given, values = {}, _by_symbol(self._given_sizes), self._fakes
        if len(values) != len(self.example):
            return [self._like(value, **how) for value in self.example]
        known = self.program.range_constraints
        lows = _by_symbol({size: bounds.lower for size, bounds in known.items()}, min)
        highs = _by_symbol({size: bounds.upper for size, bounds in known.items()}, max)
        for symbol in lows:
            low = max(math.ceil(lows[symbol]), least) if lows[symbol] > -UNBOUNDED else least
            high = highs[symbol] if highs[symbol] < UNBOUNDED else given.get(symbol, 2)
            sizes[symbol] = choose(low, max(low, int(high)))
        pairs = zip(self.example, values, strict=True)
        return [self._like(value, _resolved(fake, sizes), **how) for value, fake in pairs]

    def _between(self, low: int, high: int) -> int:
        near = (number + off for number in self._numbers for off in (0, -1, 1))
        told = [size for size in dict.fromkeys((*near, low + 1, high - 1)) if low < size < high]
        drawn = int(torch.randint(low, high + 1, (), generator=self._generator))
        known = (*self._tried, *self._given_sizes.values())
        told += [2**power for power in range(2, high.bit_length()) if low < 2**power < high]
        rest = range(low + 1, high) if high - low < _RANGE else ()
        shuffled = torch.randperm(len(rest), generator=self._generator).tolist()
        told += [rest[place] for place in shuffled]
        fresh = [size for size in (*told, drawn) if size not in known]
        self._tried.append(fresh[0] if fresh else drawn)
        return self._tried[-1]

    @cached_property
    def _numbers(self) -> list[int]:
        """The integers in the expressions of sizes, and those that ops of sizes are given."""
        nodes = list(self.program.graph.nodes)
        leaves = pytree.tree_leaves([node.meta.get("val") for node in nodes])
        sizes = [size for v in leaves for size in (v.shape if isinstance(v, Tensor) else (v,))]
        exprs = {size.node.expr for size in sizes if isinstance(size, torch.SymInt)}
        found = {abs(int(n)) for expr in exprs for n in expr.atoms() if n.is_Integer}
        symbolic = (
            n for n in nodes if isinstance(n.meta.get("val"), (torch.SymInt, torch.SymBool))
        )
        found |= {abs(arg) for n in symbolic for arg in n.args if type(arg) is int}
        return sorted(number for number in found if number > 1)

    @cached_property
    def _takes_any(self) -> bool:
        """True if no integer may be a size or a number of steps, and none is read as a float.

        Functions of huge floats, such as the sine, are not what integers are read for.
        """
        nodes = list(calls_in(self.program.graph_module))
        sizes = any(unbacked(n.meta.get("val")) or n.target in _LOOPS for n in nodes)
        return not sizes and not any(map(_reads_floats, nodes))

    @cached_property
    def _fakes(self) -> list[Any]:
        """The fake value of every input, with its symbolic sizes."""
        return [fake for _, fake in user_inputs(self.program)]

    @cached_property
    def _rows(self) -> dict[int, int]:
        """The number of rows of the tables that integers of the example are looked up in."""
        names = [name for name, _ in user_inputs(self.program)]
        values, found = dict(zip(names, self.example, strict=False)), dict[int, int]()
        for node in calls_in(self.program.graph_module):
            if node.target in _LOOKUPS:
                table, index = node.args[:2]  # type: Any, Any
                if isinstance(rows := table.meta["val"].shape[0], int):
                    found[id(values.get(index.name))] = rows
        return found

    @cached_property
    def _given_sizes(self) -> dict[Any, int]:
        """The symbolic sizes of the inputs, with the numbers that the example has."""
        pairs = zip(self.example, self._fakes, strict=False)
        tensors = [(a, b) for a, b in pairs if isinstance(a, Tensor) and isinstance(b, Tensor)]
        sizes: list[tuple[Any, int]] = [
            (size, known)
            for value, fake in tensors
            for size, known in zip(fake.shape, value.shape, strict=False)
        ]
        return {size.node.expr: known for size, known in sizes if isinstance(size, torch.SymInt)}

    def _like(
        self,
        value: Any,
        shape: Any = None,
        integers: int = _IN_RANGE,
        grid: float | None = None,
    ) -> Any:
        """Make a fresh value like a given one, of another shape if one is given.

        Which integers get others, `integers` says. Floats are multiples of a `grid`: of 1, or an
        eighth of a range that is smaller than 2, if it is 0.
        """
        if not isinstance(value, Tensor):
            return value if shape is None else shape
        sizes = tuple(value.shape) if shape is None else shape
        if value.is_floating_point():
            return self._ordered(self._floats(value, sizes, grid).to(value), value)
        if value.is_complex() or (integers == _KEPT and sizes == tuple(value.shape)):
            return value.clone()
        # torch has no minimum of most unsigned integers.
        numbers = value.numpy(force=True)
        low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
        if value.dtype == torch.bool:
            low, high = 0, 1
        elif integers >= _EQUAL and id(value) in self._rows:
            low, high = 0, self._rows[id(value)] - 1
        elif low == high and low >= 0 and integers >= (_LONE if numbers.size == 1 else _EQUAL):
            low, high = 0, 2 * low + 2 if numbers.size == 1 else max(1, high)
        # randint's end is exclusive, and int64's largest value has no successor.
        high = min(high, torch.iinfo(torch.int64).max - 1)
        if integers == _ANY and value.dtype != torch.bool and id(value) not in self._rows:
            return self._ordered(self._any(value.dtype, sizes, low, high).to(value), value)
        return self._ordered(self._integers((id(value), low, high), sizes).to(value), value)

    def _floats(self, value: Tensor, sizes: Sequence[int], grid: float | None) -> Tensor:
        known = value.detach()[value.isfinite()].to(torch.float64)
        low, high = map(float, known.aminmax()) if known.numel() else (0.0, 0.0)
        # Different numbers show more than the same one in every place.
        low, high = (-2.0, 2.0) if low == high else (low, high)
        made = torch.rand(sizes, generator=self._generator, dtype=torch.float64)
        if grid and _exact(grid) > high - low:
            low, high = -2 * _exact(grid), 2 * _exact(grid)
        made = made * (high - low) + low
        if grid is None:
            return made
        # A power of 2 is exact.
        small = 1.0 if high - low >= 2 else 2.0 ** math.floor(math.log2((high - low) / 8))
        step = _exact(grid) if grid else small
        made = (made / step).round() * step
        # Only 0.3 itself equals 0.3; most of its multiples are rounded.
        return self._some(made, made.sign() * grid) if grid and grid != step else made

    def _integers(self, key: tuple[int, int, int], sizes: Sequence[int]) -> Tensor:
        """Draw integers like a value: both ends of a range, then all of a small one in turn."""
        _, low, high = key
        count, ends = math.prod(sizes), torch.tensor([high, low])
        if high - low >= _RANGE:
            drawn = torch.randint(low, high + 1, (count,), generator=self._generator)
            return torch.cat([ends, drawn])[:count].reshape(sizes)
        turns = self._turns.pop(key, ends)
        while len(turns) < count:
            more = torch.randperm(high - low + 1, generator=self._generator) + low
            turns = torch.cat([turns, more])
        self._turns[key] = turns[count:]
        return turns[:count].reshape(sizes)

    def _sprinkled(self, value: Any, index: int, integers: bool) -> Any:
        """Make a fresh value with an edge value of its dtype in the first and some other places."""
        fresh = self._like(value, integers=integers)
        if not isinstance(fresh, Tensor) or not fresh.numel():
            return fresh
        if fresh.dtype == torch.bool or fresh.is_complex():
            return fresh
        if not fresh.is_floating_point() and not integers:
            return fresh
        edges, flat = _edges(fresh.dtype), fresh.view(-1)
        places, second = torch.rand(len(flat), generator=self._generator) < 1 / 8, len(flat) // 2
        places[0] = places[second] = True
        flat[places] = edge = edges[index % len(edges)]
        if edge == math.inf:
            # Infinities of both signs, mostly in different rows.
            flat[second:][flat[second:] == edge] = -edge
        return self._ordered(fresh, value)

    def _ordered(self, fresh: Tensor, example: Tensor) -> Tensor:
        """Sort fresh values if the example's ascend, as the boundaries of `bucketize` have to."""
        if not example.dim() or example.dtype not in _BOUNDARIES:
            return fresh
        # Rows of two often ascend by chance, and equal numbers do if all of them are equal.
        least = 1 if self.reads_sorted else 3
        rises = example[..., 1:] > example[..., :-1]
        sorts = ascends(example) if self.reads_sorted else bool(rises.all())
        return fresh.sort(-1).values if sorts and example.shape[-1] >= least else fresh

    @cached_property
    def reads_sorted(self) -> bool:
        """True if an op of the program takes a tensor for sorted."""
        nodes = calls_in(self.program.graph_module)
        return any(reads_sorted(overload_of(node.target)) for node in nodes)


def open_ties(program: ExportedProgram) -> list[Node]:
    """Return the nodes that take equal values in an order that PyTorch leaves open."""
    return [node for node in calls_in(program.graph_module) if leaves_open(node.target)]


def _by_symbol(
    numbers: Mapping[Any, Any], choose: Callable[[Any, Any], Any] = max
) -> dict[Any, Any]:
    """Return the numbers that symbols have, given those of sizes such as `2 * n + 1`.

    Of several numbers that a symbol has, one is chosen.
    """
    found: dict[Any, Any] = {}
    for size, number in numbers.items():
        for symbol in size.free_symbols:
            first = size.subs(symbol, 0)
            step = size.subs(symbol, 1) - first
            if size == symbol:
                found[symbol] = choose(found.get(symbol, number), number)
            elif step.is_Integer and size == step * symbol + first:
                own = (number - first) / step
                found[symbol] = choose(found.get(symbol, own), own)
    return found


def _edges(dtype: torch.dtype) -> tuple[Any, ...]:
    if dtype.is_floating_point:
        facts = torch.finfo(dtype)
        return (0.0, -0.0, facts.max, facts.min, facts.tiny, math.inf, math.nan)
    bounds = torch.iinfo(dtype)
    return (bounds.min, bounds.max, 0, 1, *((-1,) if bounds.min else ()))


def _scaled(value: Tensor, to: float) -> Tensor:
    """Scale floats to a largest value: they grow to one above 1, and shrink to one below."""
    most = float(value.nan_to_num(0.0, 0.0, 0.0).abs().max()) if value.numel() else 0.0
    bound = max if abs(to) > 1 else min
    factor = math.copysign(bound(abs(to) / most, 1.0) if most else 1.0, to)
    return (value.double() * factor).to(value)


def _paired(values: Sequence[Any]) -> list[Any]:
    """Make every second row of floats equal to the one before."""
    return [
        value.index_select(-2, torch.arange(value.shape[-2]) // 2 * 2)
        if is_float(value) and value.dim() > 1
        else value
        for value in values
    ]


def is_float(value: Any) -> TypeGuard[Tensor]:
    """Return True for a tensor of floats."""
    return isinstance(value, Tensor) and value.is_floating_point()


def _reads_floats(node: Node) -> bool:
    """Return True if an op reads integers as floats."""
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    read = node.all_input_nodes[: None if pointwise else 1]
    kinds = {arg.meta["val"].dtype for arg in read if isinstance(arg.meta.get("val"), Tensor)}
    whole = {kind for kind in kinds if not kind.is_floating_point} - {torch.bool}
    return is_float(node.meta.get("val")) and bool(whole)


def constants_of(program: ExportedProgram) -> list[float]:
    """Return the sizes of the numbers that ops of a program combine tensors with, but for 1.

    They and their multiples are edges.
    """
    numbers = [v.item() for v in program.constants.values() if _is_number(v)]
    for node in calls_in(program.graph_module):
        op = overload_of(node.target)
        pairs = zip(node.args, schema_of(op).arguments if op else (), strict=False)
        numbers += [value for value, own in pairs if str(own.type) in _NUMBERS]
    sizes = {float(abs(value)) for value in numbers if type(value) in (int, float)}
    return sorted(size for size in sizes if _GRID[0] <= size <= _GRID[1] and size != 1.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex()


def _exact(number: float) -> float:
    """Return the first multiple of a number that is exact, or the number without one."""
    parts = [number * EXACT * times for times in range(1, EXACT)]
    exact = (round(v) / EXACT for v in parts if math.isclose(v, round(v), rel_tol=_ALIKE))
    return next(exact, number)


def _resolved(fake: Any, sizes: dict[Any, int]) -> Any:
    """Return the shape of a fake tensor, or an integer, with a value for every symbol."""
    if isinstance(fake, Tensor):
        return tuple(_resolved(size, sizes) for size in fake.shape)
    if isinstance(fake, torch.SymInt):
        return int(fake.node.expr.subs(sizes))
    return fake if isinstance(fake, int) else None
