"""The hooks: engines that torch-tensorrt built, each a delegate of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen, validators

from etdev import Assumed, Claim, Constant, Device, Group, Partition, Probe, hookimpl
from etdev.errors import ClaimError
from etdev_trt import vendor

if TYPE_CHECKING:
    from torch.export import ExportedProgram

BACKEND_ID = "TensorRTBackend"


@frozen
class TrtPlugin:
    """TensorRT delegates.

    Args:
        weight_streaming_budget: Bytes of each engine's weights that may stay in GPU memory, the
            rest streamed from the host; None lets TensorRT choose. Needs torch-tensorrt 2.14.
    """

    weight_streaming_budget: int | None = field(
        default=None,
        validator=validators.optional([validators.ge(0), validators.lt(2**63)]),
    )

    @hookimpl
    def probe(self) -> Probe:
        """Fit where torch-tensorrt is installed with TensorRT and what it is pinned to."""
        reason = vendor.unfit(budget=self.weight_streaming_budget is not None)
        return Probe(vendor.gpus(), reason)

    @hookimpl
    def claim_nodes(self, program: ExportedProgram, method: str) -> Claim:
        """Every engine, each an atomic group with the constant that holds its bytes.

        Raises:
            ClaimError: An engine that no runtime could run; nothing else could stand in for it.
        """
        from etdev_trt.engine import engines, engines_in_branches

        # Where it can't be loaded, planning works all the same; lowering asks `probe` why.
        vendor.import_backend()
        for engine in engines_in_branches(program):
            raise _refused(method, engine, "is in a branch of control flow", "move it out")
        groups = []
        for engine in engines(program):
            if fault := engine.fault():
                raise _refused(method, engine, fault, "build it from a smaller part of the model")
            inside = [engine.constant] if engine.constant else []
            groups.append(Group([engine.node.name, *inside], f"engine {engine.name}"))
        return Claim(
            backend_id=BACKEND_ID,
            groups=groups,
            compile_specs=self._compile_specs(),
            device_types=("cuda",),
            merge=False,
        )

    @hookimpl
    def claim_constants(self, partition: Partition) -> Sequence[Constant]:
        """The engine's own bytes. What the engine reads, a cache it writes included, is passed in:
        an engine keeps nothing from one run to the next."""
        return [c for c in partition.constants if c.grouped and not c.mutated]

    @hookimpl
    def resolve_device(self, program: ExportedProgram, partition: Partition) -> Device | Assumed:
        """The GPU that the engine was built for."""
        from etdev_trt.engine import engines

        (engine,) = [e for e in engines(program) if e.node.name in partition.nodes]
        why = f"the device field of engine {engine.name} is {engine.device_field!r}"
        return engine.device() or Assumed(Device("cuda"), why)

    @hookimpl
    def payload_device(self, backend_id: str, payload: bytes) -> Device | None:
        """The GPU in the blob, which is the one that the runtime takes."""
        from etdev_trt.blob import device_of

        return device_of(payload) if backend_id == BACKEND_ID else None

    def _compile_specs(self) -> Mapping[str, bytes]:
        budget = self.weight_streaming_budget
        return {} if budget is None else {"weight_streaming_budget": str(budget).encode()}


def _refused(method: str, engine: Any, fault: str, cure: str) -> ClaimError:
    return ClaimError("trt", f"engine {engine.name} ({engine.node.name}) of method {method!r} {fault}", cure)
