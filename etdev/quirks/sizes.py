"""Sizes and positions that change from call to call or depend on data."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, zip_longest
from typing import Any

import torch
from attrs import frozen
from sympy import Expr, Symbol
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings, statically_known_true

from etdev.graph.inlining import call
from etdev.graph.nodes import graph_modules, is_unbounded, upper_bound
from etdev.graph.rebuild import with_changed
from etdev.graph.symbols import unbacked, with_own_symbols
from etdev.schema.quirk import Nodes, Quirk, Rejection, Row, SourceDifference
from etdev.schema.stages import EMIT, HAND_BACK, PREPARE, SPLIT, TO_EDGE, VALIDATE, OwnProgram
from etdev.upstream.bounds import SymT, ValueRanges, bound_sympy, symbol_is_type
from etdev.upstream.edge import with_parts
from etdev.upstream.shape_env import fixed_at, order_multiples
from etdev.upstream.trees import flat

aten = torch.ops.aten
_UNBINDS = (aten.unbind.int, aten.unbind_copy.int)
_SPLITS = (
    *(aten.split.Tensor, aten.split_copy.Tensor),
    *(aten.split_with_sizes.default, aten.split_with_sizes_copy.default),
)
Range = ValueRanges[Expr]
# A symbolic size, and the range that it was given.
Given = tuple[Symbol, Range]


def _may_be_out(node: Node) -> bool:
    """Return True if a selected row may be negative or out of range, as far as is known."""
    if not isinstance(node.args[2], Node):
        return False
    source, dim, position = node.args
    value, size = position.meta["val"], source.meta["val"].shape[dim]  # type: ignore[union-attr]
    ranges = ((value >= 0, value < size), (value < 0, value >= -size))
    return not any(all(map(statically_known_true, limits)) for limits in ranges)


def look_up(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Look up positions among those of their dimension.

    What is looked up counts from the start, and one out of range fails, as in eager PyTorch.
    """
    # The new positions are symbols, which the caller's program must not know.
    names, own = {node.name for node in found}, with_own_symbols(program)
    return with_changed(own, [n for n in own.graph.nodes if n.name in names], _look_up)


def _look_up(node: Node) -> None:
    source, dim, position = node.args
    value = source.meta["val"]  # type: ignore[union-attr]
    size = value.shape[dim]
    if not isinstance(size, int):
        size = call(node, aten.sym_size.int, source, dim)
    places = call(node, aten.arange.default, size, dtype=torch.int64)
    row = call(node, aten.full.default, [1], position, dtype=torch.int64)
    # Its kernel refuses a position out of range.
    inside = call(node, aten.item.default, call(node, aten.index.Tensor, places, [row]))
    number = inside.meta["val"]
    inside.meta["unbacked_bindings"] = compute_unbacked_bindings(number.node.shape_env, number)
    for known in (call(node, operator.ge, inside, 0), call(node, operator.lt, inside, size)):
        torch._check(known.meta["val"])  # type: ignore[no-untyped-call]
        call(node, aten._assert_scalar.default, known, "a position is in its dimension")
    node.args = (source, dim, inside)
    # The offset of its row needs no symbol now.
    node.meta.pop("unbacked_bindings", None)
    node.meta["val"] = aten.select.int(value, dim, number)


def _most(*values: torch.Tensor) -> float:
    """Return the largest number of elements of values that are broadcast together."""
    sizes = ([_bound(size) for size in reversed(v.shape)] for v in values)
    return math.prod(map(max, zip_longest(*sizes, fillvalue=1)))


def _bound(size: int | torch.SymInt) -> float:
    bound = upper_bound(size)
    return math.inf if bound is None else bound


def _is_broadcast(node: Node) -> bool:
    """Return True if a selection may be larger than the tensor that it selects from."""
    source, mask = (each.meta["val"] for each in node.args)  # type: ignore[union-attr]
    return _most(source) < _most(source, mask) < math.inf


def select_from_whole(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Expand what is selected from to its shape with the mask, and bound the selection by that."""
    names, own = {node.name for node in found}, with_own_symbols(program)
    ranges = dict(own.range_constraints)
    nodes = [node for node in own.graph.nodes if node.name in names]
    for node in nodes:
        known = ValueRanges(0, _most(*(each.meta["val"] for each in node.all_input_nodes)))
        for symbol in unbacked(node.meta["val"]):
            ranges[symbol] = node.meta["val"].fake_mode.shape_env.var_to_range[symbol] = known
    return with_parts(with_changed(own, nodes, _expand), range_constraints=ranges)


def _expand(node: Node) -> None:
    source, mask = node.args
    assumed = _most(source.meta["val"])  # type: ignore[union-attr]
    limits = [n for size in node.users for n in size.users if n.target is operator.le]
    for assertion in [user for n in limits if n.args[1] == assumed for user in n.users]:
        node.graph.erase_node(assertion)
    whole = call(node, aten.where.self, mask, source, source)
    node.args = (whole, call(node, aten.expand_as.default, mask, whole))


@frozen(eq=False)
class Size:
    """A dynamic size of an input, and the one that ExecuTorch plans memory for."""

    name: str
    dim: int
    size: torch.SymInt
    bound: int | None

    @property
    def fixed_in(self) -> str:
        """The op that fixed it, as ` in aten.split.Tensor at net.py:12`."""
        return fixed_at(self.size)


def _sizes(program: ExportedProgram) -> Iterator[Size]:
    for node in program.graph.find_nodes(op="placeholder"):
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            if not isinstance(size, int):
                yield Size(node.name, dim, size, upper_bound(size))


def _may_be_negative(node: Node) -> bool:
    """Return True if an operand of an integer's remainder may be negative, as far as is known."""
    operands = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in node.args]
    return isinstance(node.meta.get("val"), torch.SymInt) and any(map(_reaches_below_0, operands))


def _reaches_below_0(number: object) -> bool:
    """Return True if an integer may be negative, with sizes of 2 or more taken for 0 or more."""
    if not isinstance(number, torch.SymInt):
        return isinstance(number, int) and number < 0
    # torch takes sizes for 2 or more that may be 0 or 1.
    known = number.node.shape_env.var_to_range
    sizes = {
        symbol: ValueRanges(0, given.upper)
        for symbol, given in known.items()
        if symbol_is_type(symbol, SymT.SIZE) and given.lower == 2
    }
    return bool(bound_sympy(number.node.expr, {**known, **sizes}).lower < 0)


def _is_power(node: Node) -> bool:
    """Return True if a number is raised to a power that is known and positive."""
    power = node.args[1]
    return isinstance(node.meta.get("val"), torch.SymInt) and type(power) is int and power > 0


def _multiply(node: Node) -> None:
    """Make a power a product."""
    number, power = node.args
    node.target, node.args = operator.mul, (number, 1)
    for _ in range(power - 1):  # type: ignore[operator,arg-type]
        node.args = (call(node, operator.mul, *node.args), number)


def _divide_by_one(node: Node) -> None:
    """Make a float of a number by the division that ExecuTorch has."""
    node.target, node.args = operator.truediv, (*node.args, 1)


def _is_dynamic_list(node: Node) -> bool:
    """Return True if the first size of the first of several tensors is dynamic, or missing."""
    first = [value.shape[:1] for value in node.meta["val"][:1]]
    return not all(sizes and isinstance(sizes[0], int) for sizes in first)


def _take_apart(node: Node) -> None:
    """Replace each of the tensors that a tensor is split into by a slice or a row."""
    source, *others = node.args
    limits = [] if node.target in _UNBINDS else _limits(node, others.pop(0))
    dim = others[0] if others else node.kwargs.get("dim", 0)
    for reader in list(node.users):
        place: Any = reader.args[1]
        op, at = aten.select.int, [place]
        if limits:
            op, at = aten.slice.Tensor, limits[place : place + 2]
        reader.replace_all_uses_with(call(node, op, source, dim, *at))
        node.graph.erase_node(reader)
    node.graph.erase_node(node)


def _limits(node: Node, sizes: Any) -> list[Any]:
    """Return where pieces of these sizes, or of one size, begin, and where the last one ends."""
    each = sizes if isinstance(sizes, list) else [sizes] * len(node.meta["val"])
    return [0, *accumulate(each, partial(_sum, node))]


def _sum(node: Node, size: Any, other: Any) -> Any:
    known = isinstance(size, int) and isinstance(other, int)
    return size + other if known else call(node, operator.add, size, other)


def _is_dynamic_empty(node: Node) -> bool:
    """Return True if the sizes of a tensor without values are not all known."""
    order = node.kwargs.get("memory_format")
    return order in (None, torch.contiguous_format) and bool(node.all_input_nodes)


def _fill(node: Node) -> None:
    """Make a tensor without values one of zeros."""
    node.target, node.args = aten.full.default, (node.args[0], 0)
    node.kwargs = {"dtype": node.meta["val"].dtype}


def sign_as_divisors(program: OwnProgram, found: Sequence[Node]) -> OwnProgram:
    """Add the divisor to a remainder, and take the remainder of that.

    torch knows the range of the result, as it would not of `a - a // b * b`.
    """
    for node in found:
        divisor = node.args[1]
        with node.graph.inserting_before(node):
            signed = call(node, operator.mod, *node.args)
            node.args = (call(node, operator.add, signed, divisor), divisor)
    for module in graph_modules(program.graph_module):
        module.recompile()
    return program


def fixed_sizes(program: ExportedProgram) -> list[Size]:
    """Return the sizes that are symbols with one possible value."""
    return [each for each in _sizes(program) if each.size.node.maybe_as_int() is not None]


def unbounded_sizes(program: ExportedProgram) -> list[Size]:
    """Return the sizes of inputs that nothing bounds, each symbol once."""
    users = set(program.graph_signature.user_inputs)
    first: dict[str, Size] = {}
    for each in _sizes(program):
        if each.name in users and is_unbounded(each.size):
            first.setdefault(str(each.size), each)
    return list(first.values())


def narrowed_ranges(program: ExportedProgram, given: Mapping[Symbol, Range]) -> list[Given]:
    """Return the symbols whose ranges began lower when they were given, with these ranges."""
    now = program.range_constraints
    return [(s, was) for s, was in given.items() if s in now and was.lower < now[s].lower]


def widen(program: ExportedProgram, found: Sequence[Given]) -> ExportedProgram:
    """Restore the lower bounds that sizes were given."""
    ranges = dict(program.range_constraints)
    for symbol, given in found:
        ranges[symbol] = type(given)(given.lower, ranges[symbol].upper)
    return with_parts(program, range_constraints=ranges)


def possibly_empty(program: OwnProgram) -> list[torch.SymInt]:
    """Return the inner sizes of tensors that depend on data."""
    nodes = [node for module in graph_modules(program.graph_module) for node in module.graph.nodes]
    tensors = [v for n in nodes for v in flat(n.meta.get("val")) if isinstance(v, torch.Tensor)]
    inner: Iterator[Any] = (size for value in tensors for size in value.shape[1:])
    return [size for size in inner if unbacked(size)]


def order_strides(program: OwnProgram, found: Sequence[torch.SymInt]) -> OwnProgram:
    """Take no stride for smaller than one that it is a multiple of, as it is where a size is 0."""
    for size in found:
        order_multiples(size.node.shape_env)
    return program


UNKNOWN_POSITIONS = Quirk(
    name="unknown-positions",
    stage=PREPARE,
    summary="torch stops at a row that is selected by a number which depends on data and may be "
    "negative or out of range.",
    upstream="pytorch/pytorch#143249; torch/_decomp/decompositions.py, select_int",
    find=Nodes((aten.select.int,), _may_be_out),
    fix=look_up,
)
NARROW_SELECTIONS = Quirk(
    name="narrow-selections",
    stage=PREPARE,
    summary="torch takes the size of a tensor for the largest one of what a mask selects from it, "
    "also where the mask is larger.",
    upstream="pytorch/executorch#13585; torch/_subclasses/fake_impls.py, masked_select",
    find=Nodes((aten.masked_select.default,), _is_broadcast),
    fix=select_from_whole,
)
SIGNED_REMAINDERS = Quirk(
    name="signed-remainders",
    stage=(EMIT, HAND_BACK),
    summary="The remainder of integers that are no tensors has the sign of the dividend, as in C.",
    upstream="report written 2026-11-27; executorch/kernels/prim_ops/register_prim_ops.cpp, "
    "mod.Scalar",
    find=Nodes((operator.mod,), _may_be_negative, branches=True),
    fix=sign_as_divisors,
)
POWERS_OF_SIZES = Quirk(
    name="powers-of-sizes",
    stage=TO_EDGE,
    summary="torch writes a product of equal sizes as a power, which ExecuTorch has no op for.",
    upstream="report written 2026-11-27; executorch/exir/passes/executorch_prim_ops_registry.py, "
    "_PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS",
    find=Nodes((pow, operator.pow), _is_power, branches=True),
    fix=partial(with_changed, change=_multiply),
)
FLOATS_OF_SIZES = Quirk(
    name="floats-of-sizes",
    stage=TO_EDGE,
    summary="ExecuTorch's verifier refuses `torch.sym_float`, which a later pass of its own would "
    "replace with an op.",
    upstream="report written 2026-11-29; executorch/exir/verification/verifier.py, "
    "check_valid_edge_op",
    find=Nodes((torch.sym_float,), branches=True),
    fix=partial(with_changed, change=_divide_by_one),
)
DYNAMIC_LISTS = Quirk(
    name="dynamic-lists",
    stage=TO_EDGE,
    summary="ExecuTorch's verifier takes the first tensor of a list for the list, and so fixes its "
    "first size.",
    upstream="report written 2026-11-29; executorch/exir/verification/arg_validator.py, "
    "call_function",
    find=Nodes((*_SPLITS, *_UNBINDS), _is_dynamic_list, branches=True),
    fix=partial(with_changed, change=_take_apart),
)
DYNAMIC_EMPTIES = Quirk(
    name="dynamic-empties",
    stage=TO_EDGE,
    summary="ExecuTorch's op for `torch.empty` takes integers, and so fixes dynamic sizes.",
    upstream="report written 2026-11-27; executorch/exir/passes/dim_order_ops_registry.py, "
    "_empty_dim_order",
    find=Nodes((aten.empty.memory_format,), _is_dynamic_empty, branches=True),
    fix=partial(with_changed, change=_fill),
)
FIXED_SIZES = Quirk(
    name="fixed-sizes",
    # A plugin's formulas are traced between the two; what compilers fix is behind them.
    stage=(VALIDATE, SPLIT),
    summary="A decomposition fixes a dynamic size to the example's without a word.",
    upstream="report written 2026-11-27; torch/_decomp/decompositions.py, "
    "upsample_bicubic2d_default and others",
    find=fixed_sizes,
    refusal=Rejection(
        "ExecuTorch fixes dynamic size {found.dim} of input {found.name!r} of method {method!r} "
        "to {found.size}{found.fixed_in}",
        "export it with that size, or write that op with others",
    ),
)
UNBOUNDED_SIZES = Quirk(
    name="unbounded-sizes",
    stage=VALIDATE,
    summary="Memory for a dynamic size without an upper bound is planned for the example's size.",
    upstream="pytorch/executorch#20834; executorch/exir/sym_util.py, eval_upper_bound",
    find=unbounded_sizes,
    refusal=Rejection(
        "dynamic size {found.dim} of input {found.name!r} of method {method!r} has no upper bound, "
        "and ExecuTorch plans memory for {found.bound}, the example's",
        "larger inputs fail at run time, so export it with Dim(..., max=...)",
        warns=True,
    ),
)
POSSIBLY_EMPTY = Quirk(
    name="possibly-empty",
    stage=EMIT,
    summary="ExecuTorch can't tell the order in memory of a tensor with an inner size that depends "
    "on data and may be 0.",
    upstream="report written 2026-11-29; executorch/exir/tensor.py, dim_order_from_stride",
    find=possibly_empty,
    fix=order_strides,
)
NARROWED_RANGES = Quirk(
    name="narrowed-ranges",
    stage=VALIDATE,
    summary="A dynamic size that may be 0 or 1 is taken to be 2 or more.",
    upstream="report written 2026-11-27; executorch/exir/_program_utils.py, "
    "_get_updated_range_constraints",
    find=SourceDifference(
        lambda program, source: narrowed_ranges(program, source.range_constraints)
    ),
    fix=widen,
)
QUIRKS: tuple[Row, ...] = (
    *(UNKNOWN_POSITIONS, NARROW_SELECTIONS, SIGNED_REMAINDERS, POWERS_OF_SIZES),
    *(FLOATS_OF_SIZES, DYNAMIC_LISTS),
    *(DYNAMIC_EMPTIES, FIXED_SIZES, UNBOUNDED_SIZES, NARROWED_RANGES, POSSIBLY_EMPTY),
)
