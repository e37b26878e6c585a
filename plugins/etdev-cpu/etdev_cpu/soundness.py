"""XNNPACK's matches that compute what PyTorch does.

Every rule was seen in ExecuTorch's runtime with its own XnnpackPartitioner: other numbers, or a
failure when the program compiles or runs.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field
from executorch.backends.xnnpack.utils.quant_utils import (
    is_dequant,
    is_dynamic_qdq,
    is_per_channel,
    is_per_channel_group,
)
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph import unwritten_constants
from etdev_cpu.constraints import of_constants_alone
from etdev_cpu.edges import empty_problem, nan_problem
from etdev_cpu.layers import CONVOLUTION, NORM, argument, chain, short
from etdev_cpu.quantisers import (
    Reason,
    beside_integers,
    is_quantiser,
    quantiser_problem,
)

if TYPE_CHECKING:
    from etdev_cpu.plugin import CpuPlugin

_OF_CONSTANTS = "constraint", "XNNPACK crashes on what it computes with constants alone"

# Positions of the activation, the weight and the bias among the arguments.
_LAYERS = {CONVOLUTION: (0, 1, 2), "linear": (0, 1, 2), "addmm": (1, 2, 0), "mm": (0, 1, None)}
# XNNPACK unpacks groups of 4-bit weights in blocks of this size.
_BLOCK = 32
# What XNNPACK computes with the channels last, in a batch.
_OF_IMAGES = ("prelu", "max_pool2d", "avg_pool2d", "max")
# XNNPACK's own limit of dimensions.
_RANK = 6
# The least value of a 4-bit weight, by which XNNPACK knows one.
_FOUR_BITS = -8


@define(eq=False)
class Soundness:
    """Judges the matches of one program, in the order in which they are given.

    Args:
        program: In the edge dialect.
        options: The plugin with its options.
    """

    program: ExportedProgram
    options: CpuPlugin
    _constants: dict[str, str] = field(init=False)
    _alone: set[Node] = field(init=False)
    # How the matches so far read each constant. XNNPACK prepares one once in a delegate, as its
    # first reader needs it.
    _readings: dict[tuple[str, str], object] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._constants = unwritten_constants(self.program)
        self._alone = of_constants_alone(self.program, self._constants)

    def problem(self, match: Sequence[Node]) -> Reason | None:
        """Return why a match would fail or be wrong; else note how it reads its constants."""
        calls = [n for n in match if n.op == "call_function" and n.target is not operator.getitem]
        # Integers are dequantised with the layer that reads them.
        if self._alone.issuperset(calls) and not all(map(is_dequant, calls)):
            return _OF_CONSTANTS
        for node in calls:
            if reason := self._problem(node) or _quantised_problem(node, calls):
                return reason
        readings = dict(self._read(calls))
        for key, reading in readings.items():
            if self._readings.get(key, reading) != reading:
                return (
                    "shared",
                    f"XNNPACK prepares {key[0]} for another op, which reads it otherwise",
                )
        self._readings.update(readings)
        return None

    def stranded(self, groups: Sequence[Sequence[Node]]) -> dict[str, Reason]:
        """Return the dequantisers of constants whose layer is in no group, with the reason."""
        taken = {node for group in groups for node in group}
        alone = [group for group in groups if self._alone.issuperset(group)]
        read = (node.name for group in alone for node in group if not taken.issuperset(node.users))
        return dict.fromkeys(read, _OF_CONSTANTS)

    def _problem(self, node: Node) -> Reason | None:
        tanh = short(node) == "gelu" and node.kwargs.get("approximate") == "tanh"
        if tanh and not self.options.approximate and torch.float32 in _dtypes([node]):
            return "precision", "XNNPACK's tanh GELU is off by up to 5e-4; see approximate"
        if reason := _node_problem(node):
            return reason
        exact = "exact"
        if self.options.empty == exact and (reason := empty_problem(self.program, node)):
            return reason
        if self.options.nan != exact:
            return None
        return nan_problem(node, short(node), _dtypes(node.all_input_nodes))

    def _read(self, calls: Iterable[Node]) -> Iterator[tuple[tuple[str, str], object]]:
        """Constants that these nodes read, what for, and what they must be prepared as."""
        for node in calls:
            op, special, packed = short(node), set[str](), set[str]()
            if op in _LAYERS:
                for name, reading in self._read_layer(node, op):
                    special.add(name)
                    yield (name, "value"), reading
                packed = {chain(argument(node, i))[-1].name for i in _packed_places(node, op)}
                # The runtime frees what XNNPACK has packed, and with it what others would read.
                yield from (((name, "kept"), False) for name in packed)
            elif op == NORM:
                layer: Any = node.args[0]
                # XNNPACK folds the norm into the layer before it, once for a weight.
                for source in layer.all_input_nodes[1:]:
                    if source.name in self._constants:
                        yield (source.name, "norm"), node.args[1:5]
            if is_dequant(node):
                source = node.all_input_nodes[0]
                if source.name in self._constants:
                    yield (source.name, "scale"), node.args[1:]
                continue
            for source in node.all_input_nodes:
                if source.name in self._constants and source.name not in special:
                    yield (source.name, "value"), "as it is"
                if source.name in self._constants and source.name not in packed:
                    yield (source.name, "kept"), True

    def _read_layer(self, node: Node, op: str) -> Iterator[tuple[str, object]]:
        act, weight, bias = (None if i is None else argument(node, i) for i in _LAYERS[op])
        assert weight is not None
        scales = [n.args[1:] for n in chain(weight) if is_dequant(n)]
        source = chain(weight)[-1]
        layout = (bool(node.args[6]), node.args[8]) if op == CONVOLUTION and node.args[6] else op
        if source.name in self._constants and (op == CONVOLUTION or scales):
            yield source.name, ("weight", layout, *scales)
        if bias is not None and act is not None and is_dequant(act) and not is_dynamic_qdq(act):
            # A bias is quantised with the scales of the activation and of the weight.
            yield chain(bias)[-1].name, ("bias", act.args[1:3], *scales)


def _packed_places(node: Node, op: str) -> Iterator[int]:
    """Positions of a layer's weight and bias, as far as it has them."""
    yield from (i for i in _LAYERS[op][1:] if i is not None and argument(node, i) is not None)


def is_layer(node: Node) -> bool:
    """Return True if a node is a layer with a weight."""
    return node.op == "call_function" and short(node) in _LAYERS


def _dtypes(nodes: Iterable[Node]) -> set[torch.dtype]:
    return {value.dtype for value in _values(nodes)}


def _values(nodes: Iterable[Node]) -> Iterator[torch.Tensor]:
    values = (node.meta.get("val") for node in nodes)
    # XNNPACK takes only the first output of an op with several.
    first = (value[0] if isinstance(value, tuple | list) and value else value for value in values)
    yield from (value for value in first if isinstance(value, torch.Tensor))


def _node_problem(node: Node) -> Reason | None:
    op = short(node)
    if is_quantiser(node):
        return quantiser_problem(node)
    for dtype in sorted(_dtypes(node.all_input_nodes) - _dtypes([node]), key=str):
        name = str(dtype).removeprefix("torch.")
        return "dtype", f"XNNPACK would read the {name} input of {op} as another type"
    if not all(dtype.is_floating_point for dtype in _dtypes([node])):
        return "dtype", f"XNNPACK computes {op} in floating point"
    if any(value.dim() > _RANK for value in _values([node, *node.all_input_nodes])):
        return "rank", f"XNNPACK has no tensors of more than {_RANK} dimensions"
    return beside_integers(node) or _arguments_problem(node, op)


def _arguments_problem(node: Node, op: str) -> Reason | None:
    if op == "max" and not any(node.args[2:3]):
        return "arguments", "XNNPACK can't compile max without keepdim"
    if op == "max" and node.args[1] not in (2, 3):
        return "arguments", "XNNPACK can't compile max along other dimensions than 2 and 3"
    if op == "addmm" and any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        return "arguments", "XNNPACK ignores alpha and beta of addmm"
    source: Any = node.args[0] if node.args else None
    if op in _OF_IMAGES and source.meta["val"].dim() != 4:
        return "arguments", f"XNNPACK can't compile {op} of other than 4 dimensions"
    if op.startswith("permute") and source.meta["val"].dim() == 0:
        return "arguments", "XNNPACK can't load a permute without dimensions"
    if op == NORM and source.meta["val"].dim() == 2 and not is_layer(source):
        return "arguments", "XNNPACK can't compile a batch norm of 2 dimensions without its layer"
    if op == NORM and source.target is operator.getitem and short(source.args[0]) == NORM:
        return "arguments", "XNNPACK can't compile a batch norm of what another one gives"
    return None


def _quantised_problem(node: Node, match: Collection[Node]) -> Reason | None:
    """Return why XNNPACK can't compute an op of quantised values."""
    if short(node) == "mean":
        source: Any = node.args[0]
        dynamic = any(not isinstance(size, int) for size in source.meta["val"].shape)
        if dynamic and is_dequant(source) and source in match:
            return "dynamic", "XNNPACK's mean of int8 values is wrong once a batch has grown"
    return _layer_problem(node, match) if is_layer(node) else None


def _layer_problem(node: Node, match: Collection[Node]) -> Reason | None:
    """Return why XNNPACK can't have the quantised weight of a layer."""
    act, weight = (argument(node, index) for index in _LAYERS[short(node)][:2])
    for dequantiser in (n for n in chain(weight) if is_dequant(n) and n in match):
        if act is None or not is_dequant(act):
            return "quantised", "XNNPACK has no layer of a quantised weight and a float input"
        four_bits = _FOUR_BITS in dequantiser.args
        row = dequantiser.meta["val"].shape[-1]
        if is_per_channel_group(dequantiser) and not four_bits and _group_size(dequantiser) != row:
            return "blocks", "XNNPACK has groups of 4-bit weights only"
        if is_per_channel(dequantiser) and four_bits:
            if is_per_channel_group(dequantiser) and _group_size(dequantiser) % _BLOCK:
                return "blocks", f"XNNPACK needs groups of a multiple of {_BLOCK} 4-bit weights"
            if dequantiser.meta["val"].shape[-1] % 2:
                return "channels", "XNNPACK misreads 4-bit weights of an odd number of channels"
    return None


def _group_size(dequantiser: Node) -> int:
    scales: Any = dequantiser.all_input_nodes[1].meta["val"]
    return int(dequantiser.meta["val"].shape[-1]) // max(int(scales.shape[-1]), 1)
