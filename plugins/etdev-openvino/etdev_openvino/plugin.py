"""The hooks: what OpenVINO takes and computes as PyTorch does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import Attribute, field, frozen, validators

from etdev import Claim, Constant, Device, Group, KeepWhole, Partition, Probe, hookimpl
from etdev.errors import PluginError
from etdev_openvino.versions import problem

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from etdev_openvino.openvino import OpenVino

PRECISIONS = ("f32", "bf16")
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
        precision: `bf16` takes all it can; on a CPU that has bfloat16, OpenVINO then rounds the
            inputs of products and convolutions to it, and what is computed for them. Nothing in a
            .pte can forbid that. `f32` leaves those ops to others; the rest is float32 anywhere.
        skip: Ops to leave to others: `aten.mm` for all its overloads, `aten.add.Tensor` for one.
        device: Where OpenVINO runs its delegates: `CPU`, `GPU`, `GPU.1`, `NPU`. It must be there
            when they are compiled. It takes and returns tensors in host memory, so that for
            etdev a delegate is on the CPU whatever this says.
    """

    precision: str = field(default="bf16", validator=validators.in_(PRECISIONS))
    skip: tuple[str, ...] = field(default=(), converter=tuple, validator=_op_names)
    device: str = field(
        default="CPU", validator=validators.matches_re(r"(CPU|GPU|NPU)(\.[0-9]{1,2})?")
    )

    def __attrs_post_init__(self) -> None:
        if self.precision == "f32" and self.device != "CPU":
            raise ValueError(f"precision 'f32' can't be had on {self.device}, write 'bf16'")

    @hookimpl
    def probe(self) -> Probe:
        """Fit where OpenVINO's Python package is, in a version that ExecuTorch can use."""
        return Probe([Device("cpu")], unfit="; ".join(problem()) or None)

    @hookimpl
    def keep_whole(self) -> KeepWhole:
        """The ops that OpenVINO has as one and ExecuTorch would decompose."""
        return KeepWhole(self._openvino().ops_to_keep())

    @hookimpl
    def claim_nodes(self, program: ExportedProgram) -> Claim:
        """Every node that OpenVINO runs as PyTorch does; a quantiser with its dequantisers."""
        groups, refusals = self._openvino().match(program)
        return Claim(
            backend_id="OpenvinoBackend",
            groups=[Group(nodes, why) for nodes, why in groups],
            refusals=refusals,
            compile_specs={"device": self.device.encode()},
        )

    @hookimpl
    def claim_constants(self, partition: Partition) -> Sequence[Constant]:
        """All but the buffers that the method writes, which no OpenVINO model can hold."""
        return [constant for constant in partition.constants if not constant.mutated]

    @hookimpl
    def payload_device(self, backend_id: str) -> Device | None:
        """OpenVINO works on host memory, whatever the label says."""
        return Device("cpu") if backend_id == "OpenvinoBackend" else None

    def _openvino(self) -> OpenVino:
        if reason := problem():
            raise PluginError("openvino", *reason)
        from etdev_openvino.openvino import OpenVino

        return OpenVino(self.skip, products=self.precision == "bf16")
