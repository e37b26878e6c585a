"""The hooks of the plugin that gives TensorRT engines, and with `compile` ops to build more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import field, fields, frozen, validators

from etdev import (
    Assumed,
    Claim,
    Constant,
    Device,
    Draft,
    Group,
    KeepWhole,
    Partition,
    Probe,
    hookimpl,
)
from etdev.errors import ClaimError, PluginError
from etdev_trt import machine
from etdev_trt.payload import BACKEND_ID, device_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from etdev_trt.engine import Engine
    from etdev_trt.support import Support

BUILDER = "TensorRTBuilder"
RUNNER = "tensorrt"
PRECISIONS = ("fp16", "bf16")
_size = validators.optional([validators.ge(0), validators.lt(2**63)])


@frozen
class TrtPlugin:
    """TensorRT delegates.

    All but the first two options are torch-tensorrt's own, for `compile`; None means its default.

    Args:
        weight_streaming_budget: Bytes of each engine's weights that may stay in GPU memory, the
            rest streamed from the host; None lets TensorRT choose. Needs torch-tensorrt 2.14.
        compile: Also build engines of the ops that torch-tensorrt converts.
        min_block_size: Fewest ops that make an engine; torch-tensorrt's default is 5.
        precision: `fp16` or `bf16` runs ops in it where torch-tensorrt's autocast finds that safe;
            None keeps the precision of the model.
        disable_tf32: Multiply float32 in full precision.
        use_fp32_acc: Sum the products of float16 in float32.
        optimization_level: 0 to 5; more takes longer to build.
        workspace_size: Bytes of scratch memory on the GPU; 0 lets TensorRT choose.
        hardware_compatible: Build for newer GPUs too, not only for the one it is built on.
        version_compatible: Build for later versions of TensorRT too.
        torch_executed_ops: Ops that are left to other plugins, such as `aten.mm.default`.
    """

    # The version of the hooks that it was written for.
    etdev_api: ClassVar[int] = 1
    # The backend's own partitioner, for `etdev reduce`.
    partitioner_source: ClassVar[str] = (
        "from torch_tensorrt.executorch.partitioner import TensorRTPartitioner\n"
        "TensorRTPartitioner()"
    )
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
        """Fit where torch-tensorrt is installed with TensorRT and the versions it requires."""
        return machine.probe(budget=self.weight_streaming_budget is not None)

    @hookimpl
    def prepare(self, program: ExportedProgram) -> ExportedProgram | None:
        """Replace engine objects by placeholder ops, and declare the state that engines update.

        ExecuTorch's passes can't trace an op that takes an object; a placeholder has its fields.
        """
        from etdev_trt.engine import engines, holds_objects

        if not engines(program):
            return None
        from etdev_trt.vendor import copied_back, with_placeholders

        wanted = holds_objects(program) or copied_back(program)
        return with_placeholders(program) if wanted else None

    @hookimpl
    def keep_whole(self, program: ExportedProgram) -> KeepWhole | None:
        """Return ops that torch-tensorrt converts as one, with `compile`."""
        return self._support().keep_whole(program) if self.compile else None

    @hookimpl
    def claim_nodes(
        self, program: ExportedProgram, method: str, taken: Mapping[str, str]
    ) -> list[Claim]:
        """Claim every engine with the constant of its bytes, and with `compile` other ops.

        Raises:
            ClaimError: No runtime can run an engine, and no other plugin can compute it.
        """
        claims = [self._engines(program, method)]
        if self.compile:
            claims.append(self._ops_to_build(program, taken))
        if any(claim.groups for claim in claims):
            # Planning works without it too; lowering asks `probe` why it can't be loaded.
            machine.import_backend()
        return claims

    @hookimpl
    def claim_constants(self, partition: Draft) -> Sequence[Constant]:
        """Return the bytes of an engine, or the weights of one to be built.

        Everything else that an engine reads is passed in, a cache that it writes too: an engine
        keeps nothing from one run to the next.
        """
        built = partition.compiler == BUILDER
        return [c for c in partition.constants if (c.grouped or built) and not c.mutated]

    @hookimpl
    def resolve_device(
        self, program: ExportedProgram, partition: Partition
    ) -> Device | Assumed | None:
        """Return the GPU that an engine was built for; the default for one to be built."""
        if partition.compiler == BUILDER:
            return None
        from etdev_trt.engine import engines

        engine = engines(program)[partition.nodes[0]]
        why = f"the device field of engine {engine.name} is {engine.device_field!r}"
        return engine.device() or Assumed(Device("cuda"), why)

    @hookimpl
    def device_caveat(self, program: ExportedProgram, partition: Partition) -> str | None:
        """Return the runtime takes the GPU from the engine, whatever the label says."""
        if partition.compiler == BUILDER:
            return None
        from etdev_trt.engine import engines

        engine = engines(program)[partition.nodes[0]]
        built_for = engine.device()
        if built_for in (None, partition.device):
            return None
        return f"engine {engine.name} was built for {built_for} and runs there; build it again"

    @hookimpl
    def cache_key(self) -> Mapping[str, str]:
        """TensorRT's versions, since an engine is for one of them."""
        return machine.versions()

    @hookimpl
    def payload_device(
        self, backend_id: str, payload: bytes, arguments: int | None
    ) -> Device | None:
        """Return the GPU in the payload, which is the one that the runtime takes."""
        return device_of(payload, arguments) if backend_id == BACKEND_ID else None

    @hookimpl
    def runner_for(self, backend_id: str) -> str | None:
        """Return the runner of torch-tensorrt's runtime, see `etdev_trt.runner`."""
        return RUNNER if backend_id == BACKEND_ID else None

    def _engines(self, program: ExportedProgram, method: str) -> Claim:
        from etdev_trt.engine import engines, engines_in_branches

        for engine in engines_in_branches(program):
            raise _refused(method, engine, ("is in a branch of control flow", "move it out"))
        groups = []
        for name, engine in engines(program).items():
            if fault := engine.fault():
                raise _refused(method, engine, fault)
            constants = [engine.constant] if engine.constant else []
            groups.append(Group([name, *constants], f"engine {engine.name}"))
        return Claim(
            BACKEND_ID,
            groups,
            compile_specs=self._budget(),
            device_types=("cuda",),
            merge=False,
        )

    def _ops_to_build(self, program: ExportedProgram, taken: Mapping[str, str]) -> Claim:
        from etdev_trt.compiler import OPTIONS

        groups, refusals = self._support().match(program, taken)
        specs = {OPTIONS: json.dumps(self._build_options()).encode(), **self._budget()}
        return Claim(
            BACKEND_ID,
            groups,
            refusals,
            compile_specs=specs,
            device_types=("cuda",),
            compiler=BUILDER,
        )

    def _support(self) -> Support:
        if reason := machine.import_backend():
            raise PluginError("trt", f"compile = true can't plan: {reason}", "or leave it false")
        from etdev_trt.support import Support

        return Support(self._build_options())

    def _build_options(self) -> dict[str, Any]:
        names = [f.name for f in fields(type(self)) if f.name not in _OWN_OPTIONS]
        options = {name: getattr(self, name) for name in names}
        if self.weight_streaming_budget is not None:
            options["enable_weight_streaming"] = True
        return {name: value for name, value in options.items() if value not in (None, ())}

    def _budget(self) -> dict[str, bytes]:
        budget = self.weight_streaming_budget
        return {} if budget is None else {"weight_streaming_budget": str(budget).encode()}


# All other options are torch-tensorrt's.
_OWN_OPTIONS = ("weight_streaming_budget", "compile")


def _refused(method: str, engine: Engine, fault: tuple[str, str]) -> ClaimError:
    what, cure = fault
    name = f"engine {engine.name} ({engine.node.name}) of method {method!r}"
    return ClaimError("trt", f"{name} {what}", cure)
