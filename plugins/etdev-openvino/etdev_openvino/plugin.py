"""The hooks: OpenVINO takes the nodes that it computes as PyTorch does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import Attribute, field, frozen, validators

from etdev import Claim, Constant, Device, Draft, KeepWhole, Probe, hookimpl
from etdev.errors import PluginError
from etdev_openvino import machine
from etdev_openvino.payload import BACKEND_ID, COMPILER, COMPILER_IN_FLOAT32, device_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from etdev_openvino.support import Support

# In the order in which `etdev tune` tries them, as long as its budget lasts.
PRECISIONS = ("bf16", "f32_all", "f32")
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
        precision: `bf16` takes every op that OpenVINO supports; on a CPU that has bfloat16,
            OpenVINO then rounds the inputs of products and convolutions to it, and what is computed
            for them. `f32` leaves those ops to other plugins; the rest is float32 on every CPU.
            `f32_all` takes them, too, and marks every layer, so that all is float32 on every CPU; a
            partitioner can't ask that of ExecuTorch.
        skip: Ops to leave to other plugins: `aten.mm` for all its overloads, `aten.add.Tensor` for
            one.
        device: Where OpenVINO runs its delegates: `CPU`, `GPU`, `GPU.1`, `NPU`. The machine that
            compiles them must have it. A delegate takes and returns tensors in host memory, so for
            etdev it is on the CPU whatever this option says.
        nan: `exact` leaves to other plugins the ops that OpenVINO computes otherwise than PyTorch
            where a value is NaN or infinite: its relu of NaN is 0, its clamp the lower bound, a
            maximum may drop it. `ignored` takes them, for models that compute finite values.
    """

    # The version of the hooks that it was written for.
    etdev_api: ClassVar[int] = 1
    precision: str = field(default="bf16", validator=validators.in_(PRECISIONS))
    skip: tuple[str, ...] = field(default=(), converter=tuple, validator=_op_names)
    device: str = field(
        default="CPU", validator=validators.matches_re(r"(CPU|GPU|NPU)(\.[0-9]{1,2})?")
    )

    nan: str = field(default="ignored", validator=validators.in_(NAN))

    def __attrs_post_init__(self) -> None:
        if self.precision != "bf16" and self.device != "CPU":
            raise ValueError(
                f"precision {self.precision!r} can't be had on {self.device}, write 'bf16'"
            )

    @hookimpl
    def probe(self) -> Probe:
        """Fit where OpenVINO's packages are installed in versions that ExecuTorch can use."""
        return machine.probe()

    @hookimpl
    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """Ops that OpenVINO has as one and ExecuTorch would decompose."""
        return self._support().keep_whole(program)

    @hookimpl
    def claim_nodes(self, program: ExportedProgram, method: str, taken: Mapping[str, str]) -> Claim:
        """Every node that OpenVINO runs as PyTorch does; a quantiser with its dequantisers."""
        groups, refusals = self._support().match(program, taken)
        specs = {"device": self.device.encode()}
        compiler = COMPILER_IN_FLOAT32 if self.precision == "f32_all" else COMPILER
        return Claim(BACKEND_ID, groups, refusals, compile_specs=specs, compiler=compiler)

    @hookimpl
    def claim_constants(self, partition: Draft) -> Sequence[Constant]:
        """All but the buffers that the method writes, which an OpenVINO model can't hold."""
        return [constant for constant in partition.constants if not constant.mutated]

    @hookimpl
    def cache_key(self) -> Mapping[str, str]:
        """The device it compiles for: a model that is compiled for one CPU may not fit another."""
        return machine.device_kind(self.device)

    @hookimpl
    def payload_device(
        self, backend_id: str, payload: bytes, arguments: int | None
    ) -> Device | None:
        """OpenVINO works on host memory, whatever the label says."""
        return device_of(payload, arguments) if backend_id == BACKEND_ID else None

    @hookimpl
    def rounds_to(self, backend_id: str) -> str | None:
        """bfloat16, on a CPU that computes in it."""
        return "bfloat16" if backend_id == BACKEND_ID and machine.has_bfloat16() else None

    def _support(self) -> Support:
        if problem := machine.problem():
            raise PluginError("openvino", *problem)
        from etdev_openvino.support import Support

        products, exact = self.precision != "f32", self.nan == "exact"
        return Support(self.skip, products, exact, rounds=self.precision == "bf16")
