"""ExecuTorch's XnnpackPartitioner, asked for its matches instead of for tags."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define, field, frozen
from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.utils.quant_utils import is_dequant, is_quant
from executorch.exir.backend.canonical_partitioners.config_partitioner import format_target_name
from executorch.exir.backend.utils import WhyNoPartition
from torch.export import ExportedProgram
from torch.fx import Node

from etdev import Refusal

_PRECISIONS = {
    "fp32": ConfigPrecisionType.FP32,
    "static_quant": ConfigPrecisionType.STATIC_QUANT,
    "dynamic_quant": ConfigPrecisionType.DYNAMIC_QUANT,
}
_CONFIG_LOGGERS = "executorch.backends.xnnpack.partition.config"
# Where XNNPACK's matcher writes which config matched.
_MATCHED_BY = "xnn_partitioner_config"


@frozen(eq=False)
class Matches:
    """What XnnpackPartitioner would take.

    Args:
        groups: Atomic groups of nodes in graph order, each with the config that matched.
        refusals: Why not the others.
        notes: What XNNPACK's compiler looks for in `node.meta`, by name of the node.
    """

    groups: Sequence[tuple[Sequence[Node], str]]
    refusals: Sequence[Refusal]
    notes: Mapping[str, Mapping[str, Any]]


class Xnnpack:
    """One configured XnnpackPartitioner.

    Args:
        precisions: Names of precisions to take; empty takes all.
        per_op: As its `per_op_mode`.
        bf16: As its `enable_bf16`.
        dynamic_weights: As its `force_non_static_weights_for_f32_linear`.
    """

    def __init__(
        self, precisions: Sequence[str], per_op: bool, bf16: bool, dynamic_weights: bool
    ) -> None:
        # Only what differs from the default, because 1.4.1 doesn't know all of them.
        options = {"enable_bf16": bf16, "force_non_static_weights_for_f32_linear": dynamic_weights}
        self._partitioner = XnnpackPartitioner(
            config_precisions=[_PRECISIONS[name] for name in precisions] or None,
            per_op_mode=per_op,
            **{name: value for name, value in options.items() if value},
        )

    def ops_to_keep(self, program: ExportedProgram) -> tuple[list[Any], Callable[[Node], bool]]:
        """ATen ops to keep whole, and the check for a node."""
        return self._partitioner.ops_to_not_decompose(program)  # type: ignore[no-any-return]

    def match(self, program: ExportedProgram, taken: Container[str] = ()) -> Matches:
        """What XNNPACK would take of a program, which stays as it is.

        Args:
            program: Edge-dialect program.
            taken: Names of nodes that can't be had; float32 matches do without them.
        """
        position = {node: index for index, node in enumerate(program.graph.nodes)}
        before = {node: dict(node.meta) for node in position}
        with _reasons() as reasons:
            found = self._partitioner.get_matched_nodes_from_configs(program)
        notes = {node: _without_keys(node.meta, before[node]) for node in position}
        for node in position:
            node.meta = before[node]
        groups = [rest for group in found if (rest := _without(group, taken))]
        # XNNPACK collects a group in a set, whose order changes from run to run.
        ordered = sorted(
            (sorted(group, key=position.__getitem__) for group in groups),
            key=lambda group: [position[node] for node in group],
        )
        matched = {node for group in groups for node in group}
        return Matches(
            groups=[(group, _why(notes[node] for node in group)) for group in ordered],
            refusals=[
                self._refusal(node, reasons)
                for node in position
                if node.op == "call_function" and node not in matched and node.name not in taken
            ],
            notes={node.name: said for node, note in notes.items() if (said := _told(note))},
        )

    def _refusal(self, node: Node, reasons: dict[str, str]) -> Refusal:
        if node.name in reasons:
            return Refusal(node, "constraint", reasons[node.name])
        known = self._partitioner.target_partitioner_configs
        name = format_target_name(getattr(node.target, "__name__", str(node.target)))
        if name in known:
            return Refusal(node, "constraint", f"XNNPACK does not take this {name}")
        return Refusal(node, "op", f"XNNPACK has no {name}")


def _without(group: Sequence[Node], taken: Container[str]) -> list[Node]:
    """A match without the nodes that are gone, unless it is lost with them.

    XNNPACK fuses a float32 layer with its activation, but takes each alone just as well. A
    quantised pattern is lost, and so is a layer without the transpose of its weight: XNNPACK would
    compute with the weight as it is.
    """
    rest = [node for node in group if node.name not in taken]
    gone = set(group).difference(rest)
    needed = any(gone.intersection(node.all_input_nodes) for node in rest)
    return list(group) if needed or any(is_quant(n) or is_dequant(n) for n in group) else rest


def _without_keys(meta: Mapping[str, Any], others: Container[str]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if key not in others}


def _told(note: Mapping[str, Any]) -> dict[str, Any]:
    """What the compiler must be told: which quantisers it folds into their neighbours."""
    return _without_keys(note, (_MATCHED_BY,))


def _why(notes: Iterable[Mapping[str, Any]]) -> str:
    names = (name for note in notes for name in note.get(_MATCHED_BY, ()))
    return " + ".join(dict.fromkeys(names))


@define(eq=False)
class _Listener(logging.Handler):
    reasons: dict[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        super().__init__(logging.DEBUG)

    def handle(self, record: logging.LogRecord) -> bool:
        # The message is the WhyNoPartition object itself; read it now, it is reused for the next.
        if isinstance(record.msg, WhyNoPartition) and record.msg.node is not None:
            self.reasons.setdefault(record.msg.node.name, record.msg.reason)
        return True


@contextmanager
def _reasons() -> Iterator[dict[str, str]]:
    """Overhear why nodes are refused: XNNPACK says so only in its debug log."""
    listener = _Listener()
    names = [n for n in logging.root.manager.loggerDict if n.startswith(_CONFIG_LOGGERS)]
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(listener)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield listener.reasons
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(listener)
            logger.setLevel(level)
            logger.propagate = propagate
