"""Generation: ExecuTorch's passes from ATen to the edge dialect, for methods without inputs too."""

from __future__ import annotations

from collections.abc import Sequence

from executorch.exir import EdgeCompileConfig
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from etdev.graph.interpreted import Interpreted
from etdev.graph.passes import only_if_needed
from etdev.upstream.edge import edge_conversion
from etdev.upstream.exported import SpecViolationError
from etdev.upstream.operators import OpOverload

_NAME = "no_input"


def generate(
    config: EdgeCompileConfig, program: ExportedProgram, ops: Sequence[OpOverload]
) -> ExportedProgram:
    """Convert a decomposed program.

    Args:
        config: The conversion's.
        program: ATen program, which may be changed.
        ops: Those kept whole.
    """
    inputs = program.graph.find_nodes(op="placeholder")
    # A dozen passes make a graph each, of which only the last is made a program.
    program.graph.set_codegen(Interpreted())
    convert = edge_conversion(only_if_needed)
    try:
        return convert(config, program, preserve_ops=ops)
    except SpecViolationError:
        if program.graph_signature.user_inputs or not inputs:
            raise
    # ExecuTorch lifts constants in front of the first input of the user, and where there is none it
    # puts several in the wrong order.
    with program.graph.inserting_after(inputs[-1]):
        placeholder = program.graph.placeholder(_NAME)
    placeholder.meta = {"val": inputs[-1].meta["val"]}
    spec = InputSpec(InputKind.USER_INPUT, TensorArgument(placeholder.name), None)
    program.graph_signature.input_specs.append(spec)
    return _without(convert(config, program, preserve_ops=ops), placeholder.name)


def _without(program: ExportedProgram, name: str) -> ExportedProgram:
    """Remove an input that nothing reads."""
    signature = program.graph_signature
    signature.input_specs = [spec for spec in signature.input_specs if spec.arg.name != name]
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name == name:
            program.graph.erase_node(node)
    program.graph_module.recompile()
    return program
