"""The hooks of the plugin that gives OpenVINO the nodes that it computes as PyTorch does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import Attribute, field, frozen, validators

from etdev import Claim, Constant, Device, Draft, KeepWhole, Probe, hookimpl
from etdev.errors import PluginError
from etdev_openvino import machine
from etdev_openvino.payload import BACKEND_ID, COMPILER, COMPILER_IN_FLOAT32, device_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torchao.quantization.pt2e.quantizer import Quantizer

    from etdev_openvino.support import Support

# In the order in which `etdev tune` tries them, as long as its budget lasts.
PRECISIONS = ("f32_all", "bf16", "f32")
NAN = ("exact", "ignored")
_OP = re.compile(r"\w+(\.\w+){1,2}", re.ASCII)


def _op_names(_: OpenVinoPlugin, attribute: Attribute[Any], value: Sequence[str]) -> None:
    for name in value:
        if not isinstance(name, str) or not _OP.fullmatch(name):
            raise ValueError(
                f"{attribute.name} has {name!r}, write ops such as 'aten.mm' or 'aten.add.Tensor'"
            )


@frozen
class OpenVinoPlugin:
    """OpenVINO delegates.

    Args:
        device: Where OpenVINO runs its delegates: `CPU`, `GPU`, `GPU.1`, `NPU`. The machine that
            compiles them must have it. A delegate takes and returns tensors in host memory, so for
            etdev it is on the CPU whatever this option says.
        precision: `f32_all` marks every layer as precise, so that OpenVINO computes in float32 on
            every CPU; `etdev.partitioner()` can't ask that of ExecuTorch. `bf16` lets OpenVINO
            round the inputs of products and convolutions on a CPU that has bfloat16. `f32` refuses
            products and convolutions; the rest is float32 on every CPU. The default is `f32_all` on
            the CPU and `bf16` on other devices.
        skip: Ops to refuse: `aten.mm` for all its overloads, `aten.add.Tensor` for one.
        nan: `exact` refuses ops for which OpenVINO's result differs from PyTorch's where a value is
            NaN or infinite: its relu of NaN is 0, its clamp the lower bound, a maximum may drop it.
            `ignored` takes them, for models that compute finite values.
    """

    # The version of the hooks that it was written for.
    etdev_api: ClassVar[int] = 1
    # The backend's own partitioner, for `etdev reduce`.
    partitioner_source: ClassVar[str] = (
        "from executorch.backends.openvino.partitioner import OpenvinoPartitioner\n"
        "from executorch.exir.backend.compile_spec_schema import CompileSpec\n"
        "OpenvinoPartitioner([CompileSpec('device', b'CPU')])"
    )
    device: str = field(
        default="CPU", validator=validators.matches_re(r"(CPU|GPU|NPU)(\.[0-9]{1,2})?")
    )
    precision: str = field(validator=validators.in_(PRECISIONS))
    skip: tuple[str, ...] = field(default=(), converter=tuple, validator=_op_names)
    nan: str = field(default="ignored", validator=validators.in_(NAN))

    @precision.default
    def _exact_where_possible(self) -> str:
        return "f32_all" if self.device == "CPU" else "bf16"

    def __attrs_post_init__(self) -> None:
        if self.precision != "bf16" and self.device != "CPU":
            raise ValueError(
                f"precision {self.precision!r} can't be had on {self.device}, write 'bf16'"
            )

    @hookimpl
    def probe(self) -> Probe:
        """Return the CPU, if OpenVINO's packages are installed in versions that fit ExecuTorch."""
        return machine.probe()

    @hookimpl
    def quantizers(self) -> Mapping[str, Callable[[], Quantizer]]:
        """Return NNCF's quantiser, whose programs OpenVINO computes in 8 bits."""
        return {"int8": _int8}

    @hookimpl
    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """Return ops that OpenVINO has as one and ExecuTorch would decompose."""
        return self._support().keep_whole(program)

    @hookimpl
    def claim_nodes(self, program: ExportedProgram, method: str, taken: Mapping[str, str]) -> Claim:
        """Claim every node that OpenVINO computes as PyTorch does."""
        groups, refusals, caveats = self._support().match(program, taken)
        specs = {"device": self.device.encode()}
        compiler = COMPILER_IN_FLOAT32 if self.precision == "f32_all" else COMPILER
        return Claim(
            BACKEND_ID, groups, refusals, compile_specs=specs, compiler=compiler, caveats=caveats
        )

    @hookimpl
    def claim_constants(self, partition: Draft) -> Sequence[Constant]:
        """Return all constants but the buffers that the method writes."""
        return [constant for constant in partition.constants if not constant.mutated]

    @hookimpl
    def cache_key(self) -> Mapping[str, str]:
        """Return the kind of the device: a model compiled for one CPU may not fit another."""
        return machine.device_kind(self.device)

    @hookimpl
    def payload_device(
        self, backend_id: str, payload: bytes, arguments: int | None
    ) -> Device | None:
        """Return the CPU: OpenVINO works on host memory, whatever the label says."""
        return device_of(payload, arguments) if backend_id == BACKEND_ID else None

    @hookimpl
    def rounds_to(self, backend_id: str) -> str | None:
        """Return bfloat16, if the option asks for it and this CPU computes in it."""
        rounds = backend_id == BACKEND_ID and self.precision == "bf16" and machine.has_bfloat16()
        return "bfloat16" if rounds else None

    def _support(self) -> Support:
        if problem := machine.problem():
            raise PluginError("openvino", *problem)
        from etdev_openvino.support import Support

        products, exact = self.precision != "f32", self.nan == "exact"
        return Support(self.skip, products, exact, rounds=self.precision == "bf16")


def _int8() -> Quantizer:
    if problem := machine.problem():
        raise PluginError("openvino", *problem)
    from executorch.backends.openvino.quantizer import OpenVINOQuantizer

    quantizer: Quantizer = OpenVINOQuantizer()
    return quantizer
