"""The hooks: what XNNPACK takes, as ExecuTorch's own partitioner decides it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen, validators

from etdev import Claim, Constant, Device, Group, KeepWhole, Partition, Probe, hookimpl

if TYPE_CHECKING:
    from torch.export import ExportedProgram

PRECISIONS = ("fp32", "static_quant", "dynamic_quant")


@frozen
class CpuPlugin:
    """XNNPACK delegates.

    Args:
        precisions: Any of `fp32`, `static_quant`, `dynamic_quant`, as XnnpackPartitioner's
            `config_precisions`; empty means all of them.
        per_op: A delegate per op and its dependencies, instead of the largest ones.
        bf16: Also take bfloat16 linear layers.
        dynamic_weights: Also take float32 linear layers whose weight is not a constant.
    """

    precisions: tuple[str, ...] = field(
        default=(), converter=tuple, validator=validators.deep_iterable(validators.in_(PRECISIONS))
    )
    per_op: bool = False
    bf16: bool = False
    dynamic_weights: bool = False
    # By method, of the last claim: the compiler is asked for them when all is decided.
    _notes: dict[str, Mapping[str, Mapping[str, object]]] = field(
        init=False, factory=dict, eq=False, repr=False
    )

    @hookimpl
    def probe(self) -> Probe:
        """Fit wherever ExecuTorch is, since its wheel carries XNNPACK."""
        try:
            importlib.metadata.version("executorch")
        except importlib.metadata.PackageNotFoundError:
            return Probe(unfit="ExecuTorch is not installed; pip install executorch")
        return Probe([Device("cpu")])

    @hookimpl
    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """The ops that XNNPACK has as one, such as linear, where it would take them."""
        ops, when = self._xnnpack().ops_to_keep(program)
        return KeepWhole(ops, when)

    @hookimpl
    def claim_nodes(self, program: ExportedProgram, method: str, taken: Mapping[str, str]) -> Claim:
        """XNNPACK's matches, each an atomic group with its quantisers and weights."""
        matches = self._xnnpack().match(program, taken)
        self._notes[method] = matches.notes
        return Claim(
            backend_id="XnnpackBackend",
            groups=[Group(nodes, why) for nodes, why in matches.groups],
            refusals=matches.refusals,
            named_data=True,
            merge=not self.per_op,
        )

    @hookimpl
    def claim_constants(self, partition: Partition) -> Sequence[Constant]:
        """The weights of its matches; a buffer that the method writes stays outside."""
        return [c for c in partition.constants if c.grouped and not c.mutated]

    @hookimpl
    def annotate(self, partition: Partition) -> Mapping[str, Mapping[str, object]]:
        """Which quantisers XNNPACK folds into their neighbours."""
        notes = self._notes[partition.method]
        return {name: notes[name] for name in partition.nodes if name in notes}

    @hookimpl
    def payload_device(self, backend_id: str) -> Device | None:
        """XNNPACK runs on the CPU, whatever the label says."""
        return Device("cpu") if backend_id == "XnnpackBackend" else None

    def _xnnpack(self) -> Xnnpack:
        from etdev_cpu.xnnpack import Xnnpack

        return Xnnpack(self.precisions, self.per_op, self.bf16, self.dynamic_weights)


if TYPE_CHECKING:
    from etdev_cpu.xnnpack import Xnnpack
