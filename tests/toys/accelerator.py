"""A fake backend for what cannot run here, and a toy plugin that claims for it."""

from attrs import define
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult

from etdev import Claim, Device, Group, hookimpl


class FakeAccelerator(BackendDetails):
    """Stands in for a backend with a compiler we don't have; its delegates can't be run."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(processed_bytes=b"fake")


@define(eq=False)
class Accelerator:
    """Claims nodes by op name for the fake accelerator, with all their constants."""

    name: str = "accelerator"
    ops: tuple = ("",)
    device: Device | None = None
    constants: bool = True
    backend: str = "FakeAccelerator"

    @hookimpl
    def claim_nodes(self, program):
        from etdev.graph.nodes import op_name

        calls = [n for n in program.graph.nodes if n.op == "call_function"]
        mine = [n for n in calls if any(op in op_name(n) for op in self.ops)]
        groups = [Group([node]) for node in mine]
        return Claim(self.backend, groups, device_types=("cpu", "cuda"))

    @hookimpl
    def claim_constants(self, partition):
        mine = [c for c in partition.constants if partition.may_hold(c)]
        return mine if self.constants else None

    @hookimpl
    def resolve_device(self):
        return self.device
