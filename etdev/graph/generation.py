"""ExecuTorch's passes from ATen to the edge dialect, as far as they change a program."""

from __future__ import annotations

from collections.abc import Sequence

from executorch.exir import EdgeCompileConfig
from torch.export import ExportedProgram

from etdev.graph.interpreted import Interpreted
from etdev.graph.passes import only_if_needed
from etdev.upstream.edge import edge_conversion
from etdev.upstream.operators import OpOverload


def generate(
    config: EdgeCompileConfig, program: ExportedProgram, ops: Sequence[OpOverload]
) -> ExportedProgram:
    """Convert a decomposed program.

    Args:
        config: The conversion's.
        program: ATen program, which may be changed.
        ops: Those kept whole.
    """
    # A dozen passes make a graph each, of which only the last is made a program.
    program.graph.set_codegen(Interpreted())
    return edge_conversion(only_if_needed)(config, program, preserve_ops=ops)
