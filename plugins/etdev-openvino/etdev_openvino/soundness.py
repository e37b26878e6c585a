"""Nodes that run in an OpenVINO delegate as they do in PyTorch, wherever it ends.

Every rule was seen with OpenVINO 2025.4 in ExecuTorch's runtime, many without an error: zeros,
clamped integers, tensors in another order. A delegate may end at any tensor, so each node is judged
as if one did.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from attrs import define, field
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph import computed_from, op_name, unwritten_constants
from etdev.quirks import FaultyOps
from etdev_openvino import attention, edges, infinities
from etdev_openvino.edges import short

# A short code to group by, and the reason in words.
Reason = tuple[str, str]

_INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
_DTYPES = (torch.float32, torch.float16, torch.bool, *_INTEGERS)
# Ops that read integers as positions in a table, ops that return the first positions, conversions.
READ_POSITIONS = ("embedding", "index", "index_select", "gather")
_GIVE_POSITIONS = ("argmax", "argmin", "max_pool2d_with_indices")
_CONVERT = ("_to_copy", "_to_dim_order_copy")
# OpenVINO leaves them out, and a delegate that returns its input returns zeros.
_NOTHINGS = ("clone", "_clone_dim_order", "alias_copy", "detach_copy", "lift_fresh_copy", *_CONVERT)
# Between the op that dequantises a weight and the layer that reads it.
_VIEWS = ("permute_copy", "t_copy", "transpose_copy", "view_copy", "unsqueeze_copy")
# Ops that hand on values as they are, or choose among them.
_MOVES = (
    *("abs", "amax", "amin", "cat", "clamp", "constant_pad_nd", "expand_copy", "flip", "gather"),
    *("hardtanh", "index", "index_select", "max", "max_pool2d_with_indices", "maximum", "min"),
    *("minimum", "neg", "pixel_shuffle", "relu", "repeat", "roll", "select_copy", "slice_copy"),
    *("split_copy", "split_with_sizes_copy", "squeeze_copy", "unbind_copy", "where"),
    *_NOTHINGS,
    *_VIEWS,
)
# OpenVINO has only the first of their outputs.
_NORMS = FaultyOps(
    upstream=edges.SEEN,
    ops=("native_layer_norm", "native_group_norm", "_native_batch_norm_legit_no_training"),
)
_FAIL = FaultyOps(
    upstream=edges.SEEN,
    ops=(
        *("as_strided_copy", "avg_pool3d"),
        *("_native_batch_norm_legit", "_native_batch_norm_legit_functional"),
    ),
)


@define(eq=False)
class Soundness:
    """Judges the nodes of one program.

    Args:
        program: In the edge dialect.
        unpacking: Names of nodes that unpack 4-bit weights, whose integers never leave OpenVINO.
        exact: Refuse ops that differ from PyTorch at NaN or infinite values.
        constants: Names of the graph inputs that are fixed when a delegate is compiled.
        fixed: These names, and those of the nodes that are computed from nothing else.
        quantised: Names of torchao's ops and of views of what they return.
        halves: Names of the nodes whose float16 values were float32 before.
        finite: What `infinities.problem` found to have no infinity, for later calls of it.
    """

    program: ExportedProgram
    unpacking: Collection[str]
    exact: bool
    constants: dict[str, str] = field(init=False)
    fixed: set[str] = field(init=False)
    quantised: set[str] = field(init=False)
    halves: set[str] = field(init=False)
    finite: set[tuple[Node, frozenset[str]]] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.constants = unwritten_constants(self.program)
        self.fixed = {*self.constants, *computed_from(self.program, self.constants)}
        self.quantised = _quantised_by_torchao(self.program)
        self.halves = _rounded_to_half(self.program)

    def problem(self, node: Node) -> Reason | None:
        """Return why OpenVINO would fail on a node or return something else; or None."""
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if random and not attention.draws_nothing(node):
            return "random", "OpenVINO draws other random numbers than PyTorch"
        outputs = list(_outputs(node))
        sources = [source for source in node.all_input_nodes if source.name not in self.constants]
        inputs = [tensor for source in sources for tensor in _tensors(source)]
        if not outputs or any(not isinstance(s.meta.get("val"), torch.Tensor) for s in sources):
            return "scalar", "only tensors can go in and out of OpenVINO's delegate"
        crossing = [source for source in (*sources, node) if not self.is_scalar(source)]
        for tensor in (t for other in crossing for t in _outputs(other)):
            if reason := _layout_problem(tensor):
                return reason
        if node.name in self.unpacking:
            return None
        if self.exact and (reason := self.nan_problem(node)):
            return reason
        if is_quantiser(node) or is_dequantiser(node):
            return _quantiser_problem(node)
        if not self.quantised.isdisjoint(source.name for source in node.all_input_nodes):
            return "quantised", "backends know a quantised layer by torchao's ops, which it reads"
        rounded = any(source.name in self.halves for source in node.all_input_nodes)
        if rounded and not _is_half(node):
            return "rounding", "OpenVINO computes float16 in float32, and would not round to it"
        fixed = [
            source.meta["val"]
            for source in node.all_input_nodes
            if source.name in self.constants and not self._is_small_integer(source)
        ]
        return (
            attention.problem(node, self.program, self.constants)
            or _arguments_problem(node)
            or edges.arguments_problem(short(node), node)
            or infinities.problem(node, self.program, self.constants, _MOVES, self.finite)
            or edges.bool_problem(short(node), node, inputs, outputs)
            or _dtype_problem(node, [*inputs, *fixed], outputs)
        )

    def nan_problem(self, node: Node) -> Reason | None:
        """Return why OpenVINO returns something else where a value is NaN or infinite; or None."""
        sources = [source for source in node.all_input_nodes if source.name not in self.constants]
        inputs = [tensor for source in sources for tensor in _tensors(source)]
        return edges.nan_problem(short(node), node, inputs, list(_outputs(node)))

    def is_scalar(self, node: Node) -> bool:
        """Return True if a node makes a constant scalar for one op, such as the 1.0 of `x + 1`.

        The two are in one group, so that it never enters or leaves a delegate.
        """
        value = node.meta.get("val")
        if node.op != "call_function" or node.name not in self.fixed or len(node.users) != 1:
            return False
        quantised = any(is_quantiser(n) or is_dequantiser(n) for n in (node, *node.users))
        return isinstance(value, torch.Tensor) and value.dim() == 0 and not quantised

    def _is_small_integer(self, source: Node) -> bool:
        """Return True if a constant is an integer that a float32 holds."""
        target = self.constants[source.name]
        value: Any = self.program.state_dict.get(target, self.program.constants.get(target))
        # A partitioner is shown fake tensors, which have no values.
        if type(value) is not torch.Tensor or value.numel() != 1:
            return False
        return value.dtype in _INTEGERS and abs(int(value)) < 2**24


def is_quantiser(node: Node) -> bool:
    """Return True if a node makes integers of floats."""
    return short(node) in ("quantize_per_tensor", "quantize_per_channel")


def is_dequantiser(node: Node) -> bool:
    """Return True if a node makes floats of a quantiser's integers."""
    return short(node) in ("dequantize_per_tensor", "dequantize_per_channel")


def is_nothing(node: Node) -> bool:
    """Return True if a node returns its input as it is."""
    source: Any = node.args[0] if node.args else None
    if short(node) not in _NOTHINGS or not isinstance(source, Node):
        return False
    return bool(source.meta["val"].dtype == node.meta["val"].dtype)


def _quantised_by_torchao(program: ExportedProgram) -> set[str]:
    """Names of torchao's ops and of views of what they return."""
    names: set[str] = set()
    for node in program.graph.nodes:
        views = node.target is operator.getitem or short(node) in _VIEWS
        if op_name(node).startswith("torchao.") or (
            views and not names.isdisjoint(source.name for source in node.all_input_nodes)
        ):
            names.add(node.name)
    return names


def _rounded_to_half(program: ExportedProgram) -> set[str]:
    """Return the conversions to float16, and the ops that move or choose among their values."""
    names: set[str] = set()
    for node in filter(_is_half, program.graph.nodes):
        moves = node.target is operator.getitem or short(node) in _MOVES
        sources = node.all_input_nodes
        if (short(node) in _CONVERT and not _is_half(sources[0])) or (
            moves and not names.isdisjoint(source.name for source in sources)
        ):
            names.add(node.name)
    return names


def _is_half(node: Node) -> bool:
    return any(tensor.dtype == torch.float16 for tensor in _tensors(node))


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("val")
    for item in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(item, torch.Tensor):
            yield item


def _getitems(node: Node) -> dict[Any, Node]:
    return {user.args[1]: user for user in node.users if user.target is operator.getitem}


def _outputs(node: Node) -> Iterator[torch.Tensor]:
    """Values of a node that are read; a batch norm has two that are empty and unread."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        yield node.meta["val"]
    for item in _getitems(node).values():
        yield from _tensors(item)


def _layout_problem(tensor: torch.Tensor) -> Reason | None:
    if not all(isinstance(size, int) for size in tensor.shape):
        return "dynamic", "OpenVINO's delegate returns every tensor in its largest size"
    if tensor.dim() == 0:
        return "rank", "OpenVINO's delegate fails on tensors without dimensions"
    if tensor.numel() == 0:
        return "empty", "OpenVINO can't compile tensors without elements"
    if not tensor.is_contiguous():
        return "layout", "OpenVINO's delegate reads and writes every tensor as contiguous"
    return None


def _arguments_problem(node: Node) -> Reason | None:
    op, args = short(node), node.args
    if op in _FAIL:
        return "op", f"OpenVINO can't compile {op}"
    if op in _NORMS and _getitems(node).keys() - {0}:
        return "arguments", f"OpenVINO has only the first output of {op}"
    if op == "avg_pool2d" and (len(args) < 3 or not args[2] or any(args[4:5]) or any(args[6:7])):
        return "arguments", "OpenVINO averages differently without a stride or with ceil_mode"
    if op == "cat" and len(args[0]) < 2:  # type: ignore[arg-type]
        return "arguments", "OpenVINO can't compile a cat of one tensor"
    if op == "permute_copy" and any(dim < 0 for dim in args[1]):  # type: ignore
        return "arguments", "OpenVINO can't compile negative dimensions of permute"
    if op == "native_group_norm" and args[0].meta["val"].dim() < 3:  # type: ignore[union-attr]
        return "arguments", "OpenVINO can't compile a group norm of fewer than 3 dimensions"
    if op in ("amax", "amin") and (len(args) < 2 or not args[1]):
        return "arguments", f"OpenVINO can't compile {op} of all dimensions"
    return None


def _dtype_problem(
    node: Node, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Reason | None:
    read, given = {t.dtype for t in inputs}, {t.dtype for t in outputs}
    for dtype in sorted((read | given).difference(_DTYPES), key=str):
        return "dtype", f"OpenVINO's delegate has no {str(dtype).removeprefix('torch.')}"
    read, given = read.intersection(_INTEGERS), given.intersection(_INTEGERS)
    op = short(node)
    may_read = op in READ_POSITIONS or (op in _CONVERT and torch.int64 not in read)
    may_give = op in _GIVE_POSITIONS and not read
    if (read and not may_read) or (given and not may_give):
        return "integer", "OpenVINO computes integers in float32 or clamps them"
    return None


def _quantiser_problem(node: Node) -> Reason | None:
    """OpenVINO rounds in the quantiser, and its dequantiser does nothing."""
    quantiser: Any = node if is_quantiser(node) else node.args[0]
    if not is_quantiser(quantiser):
        return "quantised", "OpenVINO dequantises only what it has quantised"
    if _is_quantised_again(quantiser):
        return "quantised", "values on the edge between two steps would be rounded otherwise"
    if not all(_undoes(user, quantiser) for user in quantiser.users):
        return "quantised", "OpenVINO can't return a quantised tensor"
    return None


def _is_quantised_again(quantiser: Node) -> bool:
    """Return True if another quantiser reads a quantised value between its own steps."""
    others = {user for dequantiser in quantiser.users for user in dequantiser.users}
    others.update(source for source in quantiser.all_input_nodes if is_dequantiser(source))
    others = {node for node in others if is_quantiser(node) or is_dequantiser(node)}
    return any(other.args[1:3] != quantiser.args[1:3] for other in others)


def _undoes(node: Node, quantiser: Node) -> bool:
    return is_dequantiser(node) and node.args[1:] == quantiser.args[1:]
