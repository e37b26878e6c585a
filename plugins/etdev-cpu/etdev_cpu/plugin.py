"""The hooks of the plugin that gives XNNPACK the matches of ExecuTorch's own partitioner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import field, frozen

from etdev import Claim, Constant, Device, Draft, KeepWhole, Partition, Probe, hookimpl
from etdev_cpu import machine
from etdev_cpu.notes import Notes
from etdev_cpu.options import Options
from etdev_cpu.payload import BACKEND_ID, COMPILER, device_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from etdev.quirks import Row
    from etdev_cpu.support import Support


@frozen
class CpuPlugin(Options):
    """XNNPACK delegates, with their options."""

    # The version of the hooks that it was written for.
    etdev_api: ClassVar[int] = 1
    # The backend's own partitioner, for `etdev reduce`.
    partitioner_source: ClassVar[str] = (
        "from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner\n"
        "XnnpackPartitioner()"
    )
    # Notes of the last match of each method, which `annotate` passes on once the plan is settled.
    _notes: dict[str, Notes] = field(init=False, factory=dict, eq=False, repr=False)

    @hookimpl
    def probe(self) -> Probe:
        """Return the CPU wherever ExecuTorch is installed, since its wheel includes XNNPACK."""
        return machine.probe()

    @hookimpl
    def quirks(self) -> Sequence[Row]:
        """Faults of XNNPACK's compiler."""
        from etdev_cpu.quirks import QUIRKS

        return QUIRKS

    @hookimpl
    def quantizers(self) -> Mapping[str, Callable[[], Any]]:
        """Return XNNPACK's quantiser, with a scale for each output channel of a weight."""
        from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack

        class Quantizer(xnnpack.XNNPACKQuantizer):  # type: ignore[misc]
            # Leave out the patterns of quantisation-aware training: torch exports each of them for
            # every recipe, which takes longer than the rest of a lowering.
            SUPPORTED_PATTERNS = tuple(
                known for known in xnnpack.XNNPACKQuantizer.SUPPORTED_PATTERNS if not known.is_qat
            )

        config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
        return {"int8": lambda: Quantizer().set_global(config)}

    @hookimpl
    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """Ops that XNNPACK has as one, such as linear, where it would take them."""
        return self._support().keep_whole(program)

    @hookimpl
    def decompose(self, node: Node) -> Callable[..., Any] | None:
        """Write ops that XNNPACK lacks, or is slow at, with ops that it has."""
        from etdev_cpu.attention import attention, is_unmasked
        from etdev_cpu.images import as_images
        from etdev_cpu.norms import as_means
        from etdev_cpu.resizing import as_products

        if self.ignores_nan and is_unmasked(node):
            return attention
        if self.ignores_nan and (formula := as_means(node) or as_products(node)):
            return formula
        return as_images(node) if self.takes_float32 else None

    @hookimpl
    def claim_nodes(self, program: ExportedProgram, method: str, taken: Mapping[str, str]) -> Claim:
        """XNNPACK's matches, each an atomic group with its quantisers and weights."""
        support = self._support()
        groups, refusals, caveats = support.match(program, taken)
        self._notes[method] = support.notes
        return Claim(
            BACKEND_ID,
            groups,
            refusals,
            named_data=True,
            merge=not self.per_op,
            compiler=COMPILER,
            caveats=caveats,
        )

    @hookimpl
    def claim_constants(self, partition: Draft) -> Sequence[Constant]:
        """Return the weights in its matches, without buffers that the method writes."""
        return [c for c in partition.constants if c.grouped and not c.mutated]

    @hookimpl
    def annotate(self, partition: Partition) -> Mapping[str, Mapping[str, object]]:
        """Return notes about the quantisers that XNNPACK folds into their neighbours."""
        return self._notes[partition.method].of(partition.nodes)

    @hookimpl
    def payload_device(
        self, backend_id: str, payload: bytes, arguments: int | None
    ) -> Device | None:
        """XNNPACK runs on the CPU, whatever the label says."""
        return device_of(payload, arguments) if backend_id == BACKEND_ID else None

    def _support(self) -> Support:
        from etdev_cpu.support import Support

        return Support(self)
