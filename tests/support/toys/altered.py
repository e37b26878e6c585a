"""A plugin whose delegates are wrong: XNNPACK compiles other graphs than those it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve
from etdev_cpu.plugin import CpuPlugin
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.dialects._ops import ops as edge_ops

from etdev import hookimpl
from etdev.graph import interpreted_copy

aten = edge_ops.edge.aten


class AlteredGraph(BackendDetails):
    """XNNPACK's compiler of a copy that a function alters."""

    alter: Callable[[Any], None]

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
        copied = interpreted_copy(edge_program)
        AlteredGraph.alter(copied)
        return XnnpackBackend.preprocess(copied, compile_specs)


class Altered(CpuPlugin):
    """The CPU plugin, with `AlteredGraph` for its compiler."""

    name = "altered"

    @hookimpl
    def claim_nodes(self, program, method, taken):
        return evolve(super().claim_nodes(program, method, taken), compiler="AlteredGraph")


def capped(name: str, most: float) -> Callable[[Any], None]:
    """Return a function that makes one ReLU of a model a `hardtanh` from 0 to `most`."""

    def alter(program: Any) -> None:
        for node in program.graph.nodes:
            if node.name == name:
                node.target, node.args = aten.hardtanh.default, (node.args[0], 0.0, most)

    return alter
