"""The hooks: engines that torch-tensorrt built, each a delegate of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, fields, frozen, validators

from etdev import Assumed, Claim, Constant, Device, Group, KeepWhole, Partition, Probe, hookimpl
from etdev.errors import ClaimError, PluginError
from etdev_trt import installation

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from etdev_trt.engine import Engine

BACKEND_ID = "TensorRTBackend"
BUILDER = "TensorRTBuilder"
PRECISIONS = ("fp16", "bf16")
_size = validators.optional([validators.ge(0), validators.lt(2**63)])


@frozen
class TrtPlugin:
    """TensorRT delegates.

    All but the first two options are torch-tensorrt's own, for `compile`; None leaves one to it.

    Args:
        weight_streaming_budget: Bytes of each engine's weights that may stay in GPU memory, the
            rest streamed from the host; None lets TensorRT choose. Needs torch-tensorrt 2.14.
        compile: Also build engines, of the ops that torch-tensorrt converts.
        min_block_size: Fewest ops that make an engine; torch-tensorrt's default is 5.
        precision: `fp16` or `bf16` lets ops run in it where torch-tensorrt's autocast finds that
            safe; None keeps the precision of the model.
        disable_tf32: Multiply float32 in full precision.
        use_fp32_acc: Sum the products of float16 in float32.
        optimization_level: 0 to 5; more takes longer to build.
        workspace_size: Bytes of scratch memory on the GPU; 0 lets TensorRT choose.
        hardware_compatible: Build for newer GPUs too, not only for the one it is built on.
        version_compatible: Build for later versions of TensorRT too.
        torch_executed_ops: Ops that are left to others, such as `aten.mm.default`.
    """

    weight_streaming_budget: int | None = field(default=None, validator=_size)
    compile: bool = False
    min_block_size: int | None = field(default=None, validator=_size)
    precision: str | None = field(
        default=None, validator=validators.optional(validators.in_(PRECISIONS))
    )
    disable_tf32: bool | None = None
    use_fp32_acc: bool | None = None
    optimization_level: int | None = field(
        default=None, validator=validators.optional(validators.in_(range(6)))
    )
    workspace_size: int | None = field(default=None, validator=_size)
    hardware_compatible: bool | None = None
    version_compatible: bool | None = None
    torch_executed_ops: tuple[str, ...] = field(default=(), converter=tuple)

    @hookimpl
    def probe(self) -> Probe:
        """Fit where torch-tensorrt is installed with TensorRT and what it is pinned to."""
        reason = installation.unfit(budget=self.weight_streaming_budget is not None)
        return Probe(installation.gpus(), reason)

    @hookimpl
    def prepare(self, program: ExportedProgram) -> ExportedProgram | None:
        """Engine objects as engine placeholders, whose fields are in the graph.

        ExecuTorch's passes can't trace an op that takes an object.
        """
        from etdev_trt.engine import holds_objects

        if not holds_objects(program):
            return None
        from etdev_trt.vendor import with_placeholders

        return with_placeholders(program)

    @hookimpl
    def keep_whole(self, program: ExportedProgram) -> KeepWhole | None:
        """The ops that torch-tensorrt converts as one, if engines are to be built."""
        if not self.compile:
            return None
        self._check_can_plan()
        from etdev_trt.capability import ops_to_keep

        return KeepWhole(*ops_to_keep(program, self._build_options()))

    @hookimpl
    def claim_nodes(
        self, program: ExportedProgram, method: str, taken: Mapping[str, str]
    ) -> list[Claim]:
        """Every engine, each an atomic group with the constant that holds its bytes; and with
        `compile` the ops that engines are to be built of.

        Raises:
            ClaimError: An engine that no runtime could run; nothing else could stand in for it.
        """
        claims = [self._engines(program, method)]
        if self.compile:
            claims.append(self._ops(program, taken))
        if any(claim.groups for claim in claims):
            # Where it can't be loaded, planning works all the same; lowering asks `probe` why.
            installation.import_backend()
        return claims

    @hookimpl
    def claim_constants(self, partition: Partition) -> Sequence[Constant]:
        """The bytes of an engine, or the weights of one that is to be built.

        What an engine reads besides, a cache that it writes included, is passed in: an engine
        keeps nothing from one run to the next.
        """
        built = partition.compiler == BUILDER
        return [c for c in partition.constants if (c.grouped or built) and not c.mutated]

    @hookimpl
    def resolve_device(
        self, program: ExportedProgram, partition: Partition
    ) -> Device | Assumed | None:
        """The GPU that an engine was built for; the default for one that is yet to be built."""
        if partition.compiler == BUILDER:
            return None
        from etdev_trt.engine import engines

        engine = engines(program)[partition.nodes[0]]
        why = f"the device field of engine {engine.name} is {engine.device_field!r}"
        return engine.device() or Assumed(Device("cuda"), why)

    @hookimpl
    def device_caveat(self, program: ExportedProgram, partition: Partition) -> str | None:
        """The runtime takes the GPU from the engine, whatever the label says."""
        if partition.compiler == BUILDER:
            return None
        from etdev_trt.engine import engines

        engine = engines(program)[partition.nodes[0]]
        built_for = engine.device()
        if built_for in (None, partition.device):
            return None
        return f"engine {engine.name} was built for {built_for} and runs there; build it again"

    @hookimpl
    def payload_device(self, backend_id: str, payload: bytes) -> Device | None:
        """The GPU in the blob, which is the one that the runtime takes."""
        from etdev_trt.blob import device_of

        return device_of(payload) if backend_id == BACKEND_ID else None

    def _engines(self, program: ExportedProgram, method: str) -> Claim:
        from etdev_trt.engine import engines, engines_in_branches

        for engine in engines_in_branches(program):
            raise _refused(method, engine, ("is in a branch of control flow", "move it out"))
        groups = []
        for name, engine in engines(program).items():
            if fault := engine.fault():
                raise _refused(method, engine, fault)
            inside = [engine.constant] if engine.constant else []
            groups.append(Group([name, *inside], f"engine {engine.name}"))
        return Claim(
            BACKEND_ID,
            groups,
            compile_specs=self._budget(),
            device_types=("cuda",),
            merge=False,
        )

    def _ops(self, program: ExportedProgram, taken: Mapping[str, str]) -> Claim:
        from etdev_trt.builder import OPTIONS
        from etdev_trt.capability import match
        from etdev_trt.engine import engines

        options = self._build_options()
        names, refusals = match(program, {**taken, **dict.fromkeys(engines(program), "")}, options)
        return Claim(
            BACKEND_ID,
            [Group([name]) for name in names],
            refusals,
            compile_specs={OPTIONS: json.dumps(options).encode(), **self._budget()},
            device_types=("cuda",),
            compiler=BUILDER,
        )

    def _check_can_plan(self) -> None:
        if reason := installation.import_backend():
            raise PluginError("trt", f"compile = true can't plan: {reason}", "or leave it false")

    def _build_options(self) -> dict[str, Any]:
        names = [f.name for f in fields(type(self)) if f.name not in _OWN_OPTIONS]
        options = {name: getattr(self, name) for name in names}
        if self.weight_streaming_budget is not None:
            options["enable_weight_streaming"] = True
        return {name: value for name, value in options.items() if value not in (None, ())}

    def _budget(self) -> dict[str, bytes]:
        budget = self.weight_streaming_budget
        return {} if budget is None else {"weight_streaming_budget": str(budget).encode()}


# The others are torch-tensorrt's.
_OWN_OPTIONS = ("weight_streaming_budget", "compile")


def _refused(method: str, engine: Engine, fault: tuple[str, str]) -> ClaimError:
    what, cure = fault
    name = f"engine {engine.name} ({engine.node.name}) of method {method!r}"
    return ClaimError("trt", f"{name} {what}", cure)
