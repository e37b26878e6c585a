"""Fake backends, and a plugin that claims nodes for one."""

from __future__ import annotations

from typing import Any

from attrs import define
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult

from etdev.graph.nodes import op_name
from etdev.hookspecs import hookimpl
from etdev.schema.claims import Claim, Group

# Its name in ExecuTorch.
FAKE = "FakeAccelerator"


class FakeAccelerator(BackendDetails):  # type: ignore[misc]
    """A backend without a compiler; a Simulation runs its delegates."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
        """Return the same bytes for every program."""
        return PreprocessResult(processed_bytes=b"fake")


@define(eq=False)
class Accelerator:
    """A plugin that claims nodes by op name for the fake accelerator, with all their constants.

    Args:
        name: The plugin's name.
        ops: Parts of op names, such as `add`.
        nodes: Names of the only nodes to claim; none for no limit.
        constants: Claim the constants, too.
        backend: The backend to claim for.
    """

    name: str = "accelerator"
    ops: tuple[str, ...] = ("",)
    nodes: tuple[str, ...] = ()
    constants: bool = True
    backend: str = FAKE

    @hookimpl
    def claim_nodes(self, program: Any) -> Claim:
        """Claim its nodes, each as a group of its own."""
        calls = [n for n in program.graph.nodes if n.op == "call_function"]
        mine = [n for n in calls if any(op in op_name(n) for op in self.ops)]
        named = [n for n in mine if not self.nodes or n.name in self.nodes]
        groups = [Group([node]) for node in named]
        return Claim(self.backend, groups, device_types=("cpu", "cuda"))

    @hookimpl
    def claim_constants(self, partition: Any) -> Any:
        """Claim the constants that its delegates may hold."""
        mine = [c for c in partition.constants if partition.may_hold(c)]
        return mine if self.constants else None
