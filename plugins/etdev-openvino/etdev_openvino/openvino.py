"""What ExecuTorch's OpenvinoPartitioner supports, less what would fail or lie when it runs."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from executorch.backends.openvino.partitioner import OpenvinoOperatorsSupport, OpenvinoPartitioner
from openvino.frontend.pytorch.torchdynamo.op_support import OperatorSupport
from torch.export import ExportedProgram
from torch.fx import Node

from etdev import Refusal

Reason = tuple[str, str]

_FLOATS = (torch.float32, torch.float16)
_INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
# Ops that read integers as positions in a table, and ops that return positions.
_READ_POSITIONS = ("embedding", "index", "index_select", "gather")
_GIVE_POSITIONS = ("argmax", "argmin", "max", "min", "topk", "sort", "max_pool2d_with_indices")
_CONVERT = ("_to_copy", "_to_dim_order_copy")
# Before these, and all that leads to them, OpenVINO's CPU device converts to bfloat16.
_PRODUCTS = frozenset(
    f"aten.{name}"
    for name in (
        *("convolution", "_convolution", "mm", "bmm", "addmm", "baddbmm", "linear", "matmul"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"),
        *("upsample_nearest2d", "upsample_nearest3d", "grid_sampler_2d", "_embedding_bag"),
    )
)
# Ops that are wrong or fail in OpenVINO 2025.4, seen when each was run on its own.
_TROUBLE: dict[str, str] = {}


class OpenVino:
    """What OpenVINO takes of a program.

    Args:
        skip: Ops not to take, with or without overload.
        products: Take the ops whose inputs OpenVINO may round to bfloat16.
    """

    def __init__(self, skip: Collection[str], products: bool) -> None:
        self._skip = frozenset(skip)
        self._products = products
        prefix = "torch.ops."
        known = OperatorSupport([])._support_dict | OpenvinoOperatorsSupport.extended_support_dict
        self._ops = {name.removeprefix(prefix) for name in known if name.startswith(prefix)}

    def ops_to_keep(self) -> list[Any]:
        """ATen ops to keep whole: of those that the partitioner keeps, the ones it has."""
        ops, _ = OpenvinoPartitioner([]).ops_to_not_decompose(None)
        return [op for op in ops if str(op) in self._ops]

    def match(self, program: ExportedProgram) -> tuple[list[tuple[list[Node], str]], list[Refusal]]:
        """What to take, in atomic groups with the reason, and why not the other nodes."""
        packed = _packed_weights(program)
        frozen = _frozen(program)
        groups, refusals = [], []
        for node in program.graph.nodes:
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            reason = self._unwanted(node, packed) or _unsound(node, frozen, node.name in packed)
            if reason:
                refusals.append(Refusal(node, *reason))
            elif _is_quantiser(node):
                groups.append(([node, *node.users], "fake quantiser"))
            elif not _is_dequantiser(node):
                groups.append(([node], ""))
        return groups, refusals

    def _unwanted(self, node: Node, packed: Collection[str]) -> Reason | None:
        name, op = _names(node)
        if skipped := self._skip & {name, op}:
            return "skipped", f"{min(skipped)} is in the option skip"
        if name not in self._ops and node.name not in packed:
            return "op", f"OpenVINO has no {name}"
        if trouble := _TROUBLE.get(name, _TROUBLE.get(op)):
            return "op", trouble
        if op in _PRODUCTS and not self._products:
            return "precision", "OpenVINO rounds its inputs to bfloat16 where the CPU has it"
        return None


def _names(node: Node) -> tuple[str, str]:
    """An op with and without its overload: `aten.add.Tensor` and `aten.add`."""
    name = str(getattr(node.target, "__name__", node.target))
    return name, name.rpartition(".")[0]


def _packed_weights(program: ExportedProgram) -> set[str]:
    """Nodes that unpack 4-bit weights, which OpenVINO has only as one pattern."""
    partitioner = OpenvinoPartitioner([])
    partitioner.capture_nncf_patterns(program.graph_module)
    return set(partitioner._enabled_ops_by_name)


def _frozen(program: ExportedProgram) -> set[str]:
    """Graph inputs whose value is known when a delegate is compiled."""
    signature = program.graph_signature
    written = set(signature.buffers_to_mutate.values())
    constants = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    return {name for name, target in constants.items() if target not in written}


def _unsound(node: Node, frozen: Collection[str], packed: bool) -> Reason | None:
    """Why a node that OpenVINO has would fail or lie when it runs."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return "random", "OpenVINO draws other random numbers than PyTorch"
    outputs = list(_used_outputs(node))
    sources = [source for source in node.all_input_nodes if source.name not in frozen]
    inputs = [tensor for source in sources for tensor in _tensors(source)]
    if not outputs or any(not isinstance(s.meta.get("val"), torch.Tensor) for s in sources):
        return "scalar", "only tensors can go in and out of OpenVINO's delegate"
    for tensor in (*inputs, *outputs):
        if reason := _unsound_layout(tensor):
            return reason
    if packed:
        return None
    if _is_quantiser(node) or _is_dequantiser(node):
        return _unsound_quantiser(node)
    constants = [s.meta["val"] for s in node.all_input_nodes if s.name in frozen]
    return _unsound_dtypes(node, [*inputs, *constants], outputs)


def _used_outputs(node: Node) -> Iterator[torch.Tensor]:
    """Values of a node that somebody reads; a batch norm has two that are empty and unread."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        yield node.meta["val"]
    for user in node.users:
        if user.target is operator.getitem:
            yield from _tensors(user)


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("val")
    for item in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(item, torch.Tensor):
            yield item


def _unsound_layout(tensor: torch.Tensor) -> Reason | None:
    """Why a tensor can't go in or out of a delegate; any may, wherever the host draws a border."""
    if not all(isinstance(size, int) for size in tensor.shape):
        return "dynamic", "OpenVINO's delegate returns every tensor in its largest size"
    if tensor.dim() == 0:
        return "rank", "OpenVINO's delegate fails on tensors without dimensions"
    if tensor.numel() == 0:
        return "empty", "OpenVINO can't compile tensors without elements"
    if not tensor.is_contiguous():
        return "layout", "OpenVINO's delegate reads and writes every tensor as contiguous"
    return None


def _unsound_dtypes(
    node: Node, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Reason | None:
    name, op = _names(node)
    dtypes = {tensor.dtype for tensor in (*inputs, *outputs)}
    for dtype in sorted(dtypes - {*_FLOATS, *_INTEGERS, torch.bool}, key=str):
        return "dtype", f"OpenVINO's delegate has no {str(dtype).removeprefix('torch.')}"
    short = op.removeprefix("aten.").removeprefix("dim_order_ops.")
    read = {tensor.dtype for tensor in inputs}.intersection(_INTEGERS)
    given = {tensor.dtype for tensor in outputs}.intersection(_INTEGERS)
    if read and short not in (*_READ_POSITIONS, *_CONVERT):
        return "integer", "OpenVINO computes integers in float32 or clamps them"
    if given and (read or short not in _GIVE_POSITIONS):
        return "integer", "OpenVINO computes integers in float32 or clamps them"
    return None


def _is_quantiser(node: Node) -> bool:
    return _names(node)[0].startswith("quantized_decomposed.quantize_per_")


def _is_dequantiser(node: Node) -> bool:
    return _names(node)[0].startswith("quantized_decomposed.dequantize_per_")


def _unsound_quantiser(node: Node) -> Reason | None:
    """OpenVINO rounds in the quantiser and returns its input as it is from the dequantiser."""
    quantiser: Any = node if _is_quantiser(node) else node.args[0]
    if not _is_quantiser(quantiser):
        return "quantised", "OpenVINO dequantises only what it has quantised"
    if not all(_undoes(user, quantiser) for user in quantiser.users):
        return "quantised", "OpenVINO can't return a quantised tensor"
    return None


def _undoes(node: Node, quantiser: Node) -> bool:
    return _is_dequantiser(node) and node.args[1:] == quantiser.args[1:]
