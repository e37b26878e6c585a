"""The hooks of the example-npu plugin."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

from attrs import field, frozen
from attrs.validators import in_

from etdev import (
    ArtifactError,
    Claim,
    Constant,
    Device,
    Draft,
    Group,
    KeepWhole,
    Partition,
    Probe,
    Refusal,
    hookimpl,
)

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

BACKEND_ID = "ExampleNpuBackend"
MAGIC = b"NPU1"
CORES = 2
LINEAR, RELU = "aten.linear.default", "aten.relu.default"


@frozen
class ExampleNpu:
    """Float32 linear layers and ReLUs of fixed sizes.

    Args:
        core: The core that computes the partitions for which a registry names no device.
    """

    etdev_api: ClassVar[int] = 1
    name: ClassVar[str] = "example-npu"
    core: int = field(default=0, validator=in_(range(CORES)))

    @hookimpl
    def probe(self) -> Probe:
        """Return both cores; a real plugin looks for its driver here."""
        return Probe([Device("npu", core) for core in range(CORES)])

    @hookimpl
    def keep_whole(self) -> KeepWhole:
        """Return linear, which ExecuTorch would decompose into a transposition and a product."""
        import torch

        return KeepWhole([torch.ops.aten.linear.default])

    @hookimpl
    def claim_nodes(self, program: ExportedProgram) -> Claim:
        """Return a group for each supported node, and a reason for every other node."""
        import example_npu.backend  # noqa: F401  registers ExampleNpuBackend with ExecuTorch
        from etdev.graph import unwritten_constants

        weights = unwritten_constants(program).keys()
        groups, refusals = [], []
        for node in program.graph.nodes:
            if node.op != "call_function":
                continue
            if reason := _obstacle(node, weights):
                refusals.append(Refusal(node, *reason))
            else:
                groups.append(Group([node]))
        # Tensors of a device that ExecuTorch doesn't know are in the host's memory.
        return Claim(BACKEND_ID, groups, refusals, device_types=("npu",))

    @hookimpl
    def claim_constants(self, partition: Draft) -> Sequence[Constant]:
        """Return all weights: the compiler writes them into the payload."""
        return [constant for constant in partition.constants if not constant.mutated]

    @hookimpl
    def resolve_device(self, partition: Partition) -> Device:
        """Return the core of the option; a device in the registry takes precedence."""
        return Device("npu", self.core)

    @hookimpl
    def payload_device(self, backend_id: str, payload: bytes) -> Device | None:
        """Return the core that a payload was compiled for."""
        if backend_id != BACKEND_ID:
            return None
        if payload[:4] != MAGIC or len(payload) < 8:
            raise ArtifactError(self.name, "the payload is damaged", "lower the model again")
        return Device("npu", *struct.unpack_from("<I", payload, 4))

    @hookimpl
    def runner_for(self, backend_id: str) -> str | None:
        """Return the runner that loads the C++ half of the backend."""
        return "example-npu" if backend_id == BACKEND_ID else None


def _obstacle(node: Node, weights: Collection[str]) -> tuple[str, str] | None:
    """Return code and text of why a node is not supported; None if it is."""
    import torch

    from etdev.graph import op_name

    op = op_name(node)
    if op not in (LINEAR, RELU):
        return "op", f"the NPU has no {op}"
    for value in (node, *node.all_input_nodes):
        tensor = value.meta["val"]
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32:
            return "dtype", f"{value} is not a float32 tensor"
        if not all(isinstance(size, int) and size > 0 for size in tensor.shape):
            return "shape", f"{value} has a dynamic size, or a size of 0"
        if not tensor.is_contiguous():
            return "layout", f"{value} is not contiguous"
    own = [value for value in node.args[1:] if value is not None]
    if missing := [str(value) for value in own if getattr(value, "name", "") not in weights]:
        return "constraint", f"{missing[0]} is not a constant"
    return None
