"""The matches of ExecuTorch's XnnpackPartitioner that run as in PyTorch, without its tags."""

from __future__ import annotations

import operator
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.utils.quant_utils import is_dequant, is_quant
from executorch.exir.backend.canonical_partitioners.config_partitioner import format_target_name
from torch.export import ExportedProgram
from torch.fx import Graph, Node

import etdev_cpu.compiler  # noqa: F401  Loads the compiler.
from etdev import Group, KeepWhole, Refusal
from etdev.graph import unwritten_constants
from etdev_cpu.attention import ATTENTION
from etdev_cpu.constraints import OTHERWISE, loses_nan
from etdev_cpu.images import FORMULAS
from etdev_cpu.layers import NORM, is_layer, short
from etdev_cpu.matching import catch_failures, configs, reasons_told
from etdev_cpu.notes import IMPLICIT, Notes, untagged
from etdev_cpu.options import Options
from etdev_cpu.quantisers import Reason, is_quantiser, read_elsewhere
from etdev_cpu.resizing import BICUBIC
from etdev_cpu.soundness import Soundness
from etdev_cpu.sources import hide_sources

# The key of `node.meta` under which XNNPACK's matcher writes which config matched.
_MATCHED_BY = "xnn_partitioner_config"


class Support:
    """The matches of one configured XnnpackPartitioner.

    Args:
        options: The plugin's options.

    Attributes:
        notes: Notes in `node.meta` for XNNPACK's compiler; set by `match`.
    """

    def __init__(self, options: Options) -> None:
        self.notes = Notes({}, {})
        self._options = options
        self._partitioner = XnnpackPartitioner(
            configs=configs(),
            config_precisions=[ConfigPrecisionType[name.upper()] for name in options.precisions]
            or None,
            per_op_mode=options.per_op,
            # ExecuTorch 1.4.1 doesn't know this flag.
            **({"enable_bf16": True} if options.bf16 else {}),
        )
        self._failures = catch_failures(self._partitioner.target_partitioner_configs.values())

    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """Return the ATen ops that the partitioner keeps, with its check for a node."""
        # XNNPACK tags the quantisers around a layer even where it doesn't take the layer.
        with _notes(program.graph):
            ops, check = self._partitioner.ops_to_not_decompose(program)
        written = (ATTENTION, BICUBIC) if self._options.ignores_nan else ()
        written += tuple(FORMULAS) if self._options.takes_float32 else ()
        return KeepWhole(ops, untagged(check) if check else None, decomposes=written)

    def match(
        self, program: ExportedProgram, taken: Mapping[str, str]
    ) -> tuple[list[Group], list[Refusal], list[Refusal]]:
        """Match a program, and set `notes`.

        Args:
            program: Edge-dialect program; it is not changed.
            taken: Owners of the nodes that others have; float32 matches do without those nodes.

        Returns:
            Atomic groups in graph order, the reasons for refusing the other nodes, and caveats.
        """
        with _notes(program.graph) as notes, reasons_told() as reasons:
            hidden = hide_sources(program.graph)
            found = self._partitioner.get_matched_nodes_from_configs(program)
            constants = unwritten_constants(program)
            matches = [_with_weights(match, constants) for match in found]
        reasons.update(self._failures)
        groups = _ordered(program.graph, [_without(match, taken) for match in matches])
        read = {
            node.name: {k: v for k, v in meta.items() if k != _MATCHED_BY}
            | hidden.get(node.name, {})
            for node, meta in notes.items()
        }
        # XNNPACK leaves out quantisers whose layer does their work.
        implicit = {name for name, note in read.items() if note.get(IMPLICIT)}
        groups, problems = self._sound(program, groups, taken, implicit)
        self.notes = Notes(read, _patterns(groups))
        matched = {node for group in groups for node in group}
        refusals = [
            self._refusal(node, reasons, problems)
            for node in program.graph.nodes
            if node.op == "call_function" and node not in matched and node.name not in taken
        ]
        # Integers are never NaN.
        floats = (node for group in groups if not any(map(is_dequant, group)) for node in group)
        caveats = [
            Refusal(node, "nan", OTHERWISE)
            for node in floats
            if node.op == "call_function" and loses_nan(node)
        ]
        named = [
            Group(group, _why(notes[node] for node in group), whole=_is_quantised(group))
            for group in groups
        ]
        return named, refusals, caveats

    def _sound(
        self,
        program: ExportedProgram,
        groups: Sequence[list[Node]],
        taken: Container[str],
        implicit: Collection[str],
    ) -> tuple[list[list[Node]], dict[str, Reason]]:
        """Return the groups that run as in PyTorch, and why the nodes of the others don't.

        Layers are judged first, since only they need their weights as XNNPACK prepares them.
        """
        problems = dict[str, Reason]()
        sound = Soundness(program, self._options)
        kept, layers_first = [], sorted(groups, key=lambda group: not any(map(is_layer, group)))
        for group in layers_first:
            # The host drops a group that has a node of others.
            lost = any(node.name in taken for node in group)
            if not lost and (reason := sound.problem(group)):
                problems.update((node.name, reason) for node in group)
            else:
                kept.append(group)
        stranded = sound.stranded(kept)
        problems.update(stranded)
        kept = [group for group in kept if stranded.keys().isdisjoint(n.name for n in group)]
        shared = read_elsewhere(kept, implicit)
        problems.update(shared)
        kept = [group for group in kept if len(group) == 1 or group[0].name not in shared]
        return _ordered(program.graph, kept), problems

    def _refusal(
        self, node: Node, reasons: Mapping[str, str], problems: Mapping[str, Reason]
    ) -> Refusal:
        if node.name in problems:
            return Refusal(node, *problems[node.name])
        known = self._partitioner.target_partitioner_configs
        name = format_target_name(getattr(node.target, "__name__", str(node.target)))
        if node.name in reasons or name in known:
            why = reasons.get(node.name, f"XNNPACK does not take this {name}")
            return Refusal(node, "constraint", why)
        return Refusal(node, "op", f"XNNPACK has no {name}")


def _is_quantised(group: Sequence[Node]) -> bool:
    """Return True for a layer with quantisers, which computes in floats without one of them."""
    calls = _calls(group)
    return any(map(is_quantiser, calls)) and not all(map(is_quantiser, calls))


def _calls(group: Sequence[Node]) -> list[Node]:
    return [n for n in group if n.op == "call_function" and n.target is not operator.getitem]


def _patterns(groups: Iterable[Sequence[Node]]) -> dict[str, list[frozenset[str]]]:
    """Return the ops of each group by node name, except of groups of quantisers alone."""
    patterns: dict[str, list[frozenset[str]]] = {}
    for group in groups:
        calls = _calls(group)
        if all(is_quant(node) or is_dequant(node) for node in calls):
            continue
        names = frozenset(node.name for node in calls)
        for name in names:
            patterns.setdefault(name, []).append(names)
    return patterns


def _with_weights(match: Sequence[Node], constants: Container[str]) -> list[Node]:
    """Return a match with the weights that XNNPACK's matcher leaves to an earlier match."""
    packing = [node for node in match if is_layer(node) or short(node) == NORM]
    read = (source for node in packing for source in node.all_input_nodes)
    return list(dict.fromkeys((*match, *(source for source in read if source.name in constants))))


def _without(match: Sequence[Node], taken: Container[str]) -> list[Node]:
    """Return a match without the nodes that are taken, or all of it if it can't do without them.

    XNNPACK fuses a float32 layer with its activation, but takes each alone just as well. A
    quantised pattern that misses a node is lost, and so is a layer that misses the transpose of its
    weight: XNNPACK would compute with the weight as it is.
    """
    rest = [node for node in match if node.name not in taken]
    missing = set(match).difference(rest)
    needed = any(missing.intersection(node.all_input_nodes) for node in rest)
    return list(match) if needed or any(is_quant(n) or is_dequant(n) for n in match) else rest


def _ordered(graph: Graph, groups: Iterable[Sequence[Node]]) -> list[list[Node]]:
    """Return groups in graph order, each in graph order; those without an op are left out.

    XNNPACK collects a group in a set, whose order changes from run to run.
    """
    position = {node: index for index, node in enumerate(graph.nodes)}
    whole = (group for group in groups if any(node.op == "call_function" for node in group))
    ordered = (sorted(group, key=position.__getitem__) for group in whole)
    return sorted(ordered, key=lambda group: [position[node] for node in group])


def _why(notes: Iterable[Mapping[str, Any]]) -> str:
    """Names of the configs that matched a group."""
    names = (name for note in notes for name in note.get(_MATCHED_BY, ()))
    return " + ".join(dict.fromkeys(names))


@contextmanager
def _notes(graph: Graph) -> Iterator[dict[Node, dict[str, Any]]]:
    """Collect what XNNPACK's matcher writes to `node.meta`, and take it out again."""
    before = {node: dict(node.meta) for node in graph.nodes}
    notes: dict[Node, dict[str, Any]] = {}
    try:
        yield notes
    finally:
        for node, meta in before.items():
            notes[node] = {key: value for key, value in node.meta.items() if key not in meta}
            node.meta = meta
