"""XNNPACK's matches that compute what PyTorch does, alone and with the matches before them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import define, field
from executorch.backends.xnnpack.utils.quant_utils import is_dequant
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph import computed_from, stored_values, unwritten_constants
from etdev_cpu.constraints import node_problem
from etdev_cpu.layers import CONVOLUTION, LAYERS, NORM, argument, chain, is_layer, short
from etdev_cpu.options import Options
from etdev_cpu.quantisers import ZERO_POINTS, Reason, parameter, quantised_problem, scales_of_bias

_OF_CONSTANTS = "constraint", "XNNPACK crashes on what it computes with constants alone"


@define(eq=False)
class Soundness:
    """Judges the matches of one program, in the order in which they are given.

    Args:
        program: In the edge dialect.
        options: The plugin's options.
    """

    program: ExportedProgram
    options: Options
    _constants: dict[str, str] = field(init=False)
    _alone: set[Node] = field(init=False)
    # How the matches so far read each constant. XNNPACK prepares one once in a delegate, as its
    # first reader needs it.
    _readings: dict[tuple[str, str], object] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._constants = unwritten_constants(self.program)
        # Ops without inputs, such as `arange`, are computed at run time.
        alone = computed_from(self.program, self._constants, inputless=False)
        self._alone = {node for node in self.program.graph.nodes if node.name in alone}

    def problem(self, match: Sequence[Node]) -> Reason | None:
        """Return why a match would fail or be wrong; else note how it reads its constants."""
        calls = [n for n in match if n.op == "call_function" and n.target is not operator.getitem]
        # Integers are dequantised with the layer that reads them.
        if self._alone.issuperset(calls) and not all(map(is_dequant, calls)):
            return _OF_CONSTANTS
        for node in calls:
            reason = node_problem(node, self._constants, self.options)
            if reason := reason or quantised_problem(node, calls):
                return reason
            if is_dequant(node) and self._has_zero_points(node):
                return ZERO_POINTS
        readings = dict(self._read(calls))
        for key, reading in readings.items():
            if self._readings.get(key, reading) != reading:
                text = f"XNNPACK prepares {key[0]} for another op, which reads it otherwise"
                return "shared", text
        self._readings.update(readings)
        return None

    def stranded(self, groups: Sequence[Sequence[Node]]) -> dict[str, Reason]:
        """Return the dequantisers of constants whose layer is in no group, with the reason."""
        taken = {node for group in groups for node in group}
        alone = [group for group in groups if self._alone.issuperset(group)]
        read = (node.name for group in alone for node in group if not taken.issuperset(node.users))
        return dict.fromkeys(read, _OF_CONSTANTS)

    def _read(self, calls: Iterable[Node]) -> Iterator[tuple[tuple[str, str], object]]:
        """Constants that these nodes read, what for, and what they must be prepared as."""
        for node in calls:
            special, packed = set[str](), set[str]()
            if is_layer(node):
                for name, reading in self._read_layer(node):
                    special.add(name)
                    if reading is not None:
                        yield (name, "value"), reading
                weights = (argument(node, place) for place in LAYERS[short(node)][1:])
                packed = {chain(weight)[-1].name for weight in weights if weight}
                # The runtime frees what XNNPACK has packed, and with it what others would read.
                yield from (((name, "kept"), False) for name in packed)
            elif short(node) == NORM:
                layer: Any = node.args[0]
                # XNNPACK folds the norm into the layer before it, once for a weight.
                for name in self._among_constants(layer.all_input_nodes[1:]):
                    yield (name, "norm"), node.args[1:5]
            if is_dequant(node):
                for name in self._among_constants(node.all_input_nodes[:1]):
                    yield (name, "scale"), node.args[1:]
                continue
            for name in self._among_constants(node.all_input_nodes):
                if name not in special:
                    yield (name, "value"), "as it is"
                if name not in packed:
                    yield (name, "kept"), True

    def _has_zero_points(self, dequantiser: Node) -> bool:
        """Return True if a zero point of a weight's channels or groups is not 0."""
        node = argument(dequantiser, parameter(dequantiser, "zero_point"))
        target = self._constants.get(node.name) if node else None
        return target is not None and bool(stored_values(self.program)[target].any())

    def _among_constants(self, nodes: Iterable[Node]) -> list[str]:
        return [node.name for node in nodes if node.name in self._constants]

    def _read_layer(self, node: Node) -> Iterator[tuple[str, object]]:
        """Yield constants that a layer reads, with what they must be prepared as, if it matters."""
        op = short(node)
        weight, bias = (argument(node, place) for place in LAYERS[op][1:])
        scales = [n.args[1:] for n in chain(weight) if is_dequant(n)]
        source = chain(weight)[-1]
        layout = (bool(node.args[6]), node.args[8]) if op == CONVOLUTION and node.args[6] else op
        if source.name in self._constants and (op == CONVOLUTION or scales):
            yield source.name, ("weight", layout, *scales)
        if scales_of_bias(node):
            # It is given a copy if anything else reads it.
            yield chain(bias)[-1].name, None
