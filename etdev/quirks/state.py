"""Results of a method that are written to buffers, which ExecuTorch loses or reads too late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import frozen
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec
from torch.fx import Node

from etdev.graph.inlining import call
from etdev.graph.nodes import op_name
from etdev.graph.rebuild import copy_graph, without_inputs
from etdev.graph.signature import argument
from etdev.schema.quirk import Quirk, Rejection
from etdev.schema.stages import DECOMPOSE, FINISH, PLAN, VALIDATE
from etdev.upstream.operators import ops_of

_WRITES = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.PARAMETER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
)
_VIEW = "aten.view_copy.default"


@frozen(eq=False)
class MethodResult:
    """A result of a method: an output, or the new value of the input that is its `target`."""

    index: int
    spec: OutputSpec
    node: Node
    target: str

    @property
    def name(self) -> str:
        """The buffer, the input or the output, for an error."""
        return self.spec.target or str(self.spec.arg.name)


def _results(program: ExportedProgram) -> list[MethodResult]:
    """Return the results that are computed, new values of buffers included, in their order."""
    inputs = {
        spec.target if spec.target is not None else spec.arg.name: spec.arg.name
        for spec in program.graph_signature.input_specs
        if hasattr(spec.arg, "name")
    }
    results: Any = program.graph.output_node().args[0]
    return [
        MethodResult(index, spec, node, inputs[spec.target] if spec.kind in _WRITES else "")
        for index, (spec, node) in enumerate(
            zip(program.graph_signature.output_specs, results, strict=True)
        )
        if isinstance(node, Node)
    ]


def lost_write_backs(program: ExportedProgram) -> list[MethodResult]:
    """Return the new values that are the value of another buffer."""
    updates = [result for result in _results(program) if result.target]
    # Written parameters become buffers.
    buffers = {update.target for update in updates}
    buffers.update(program.graph_signature.inputs_to_buffers)
    return [u for u in updates if u.node.name in buffers and u.node.name != u.target]


def shared_values(program: ExportedProgram) -> Iterator[MethodResult]:
    """Yield the new values that another buffer has, too."""
    seen: set[Node] = set()
    for result in _results(program):
        if result.target and result.node in seen:
            yield result
        seen.update([result.node] if result.target else ())


def late_values(program: ExportedProgram) -> Iterator[MethodResult]:
    """Yield the outputs that are the old value of a buffer, and the new values that view one."""
    results = _results(program)
    written: set[str] = set()
    for update in (result for result in results if result.target):
        base = update.node
        while op_name(base) == _VIEW:
            base = base.all_input_nodes[0]
        if base.name in written:
            yield update
        written.add(update.target)
    for output in (result for result in results if not result.target):
        if output.node.op == "placeholder" and output.node.name in written:
            yield output


def clone_results(program: ExportedProgram, found: Sequence[MethodResult]) -> ExportedProgram:
    """Clone results at the end of a method."""
    graph = copy_graph(program.graph)
    results: Any = list(graph.output_node().args[0])  # type: ignore[arg-type]
    clone = ops_of(program).clone.default
    specs = list(program.graph_signature.output_specs)
    for index in (result.index for result in found):
        source, spec = results[index], specs[index]
        with graph.inserting_before(graph.output_node()):
            results[index] = call(source, clone, source)
        specs[index] = OutputSpec(spec.kind, argument(results[index]), spec.target)
    graph.output_node().args = (tuple(results),)
    return without_inputs(program, graph, (), specs)


def of_kind(kind: OutputKind) -> Callable[[ExportedProgram], list[MethodResult]]:
    """Return a function that finds what a program writes of one kind."""
    return lambda program: [each for each in _results(program) if each.spec.kind is kind]


UNKEPT: Rejection[ExportedProgram] = Rejection(
    "ExecuTorch would not write {found.name!r} as the model does",
    "lower with etdev.Lowerer, which completes such a program or says what to change",
)
# A new value may be another buffer's once more after the copy between them was taken out.
_UPDATES = (DECOMPOSE, FINISH, VALIDATE, PLAN)
WRITTEN_INPUTS = Quirk(
    name="written-inputs",
    # torch's own passes fail on some of them, too.
    stage=(DECOMPOSE, FINISH, VALIDATE),
    summary="The runtime writes to a copy of an input instead of the input.",
    upstream="pytorch/executorch#4785; executorch/extension/pybindings/pybindings.cpp, run_method",
    find=of_kind(OutputKind.USER_INPUT_MUTATION),
    refusal=Rejection(
        "method {method!r} writes to its input {found.name!r}, and ExecuTorch's runtime would "
        "write to a copy of it",
        "clone the input first, and return the new value if it is needed",
    ),
    in_loop=UNKEPT,
)
LOST_WRITE_BACK = Quirk(
    name="lost-write-back",
    stage=_UPDATES,
    summary="A buffer whose new value is the value of another buffer is never written.",
    upstream="pytorch/executorch#7515; "
    "executorch/exir/passes/insert_write_back_for_buffers_pass.py, _inplace_lineage, since #7810",
    find=lost_write_backs,
    fix=clone_results,
    in_loop=UNKEPT,
)
SHARED_NEW_VALUE = Quirk(
    name="shared-new-value",
    stage=_UPDATES,
    summary="A new value that two buffers have in common is refused by torch's verifier.",
    upstream="report written 2026-11-27; torch/_export/verifier.py, "
    "_verify_exported_program_signature",
    find=shared_values,
    fix=clone_results,
    in_loop=UNKEPT,
)
STALE_OUTPUTS = Quirk(
    name="stale-outputs",
    stage=_UPDATES,
    summary="An output that is the old value of a buffer, or a new value that is a view of another "
    "buffer, is read after that buffer is written.",
    upstream="report written 2026-11-27; "
    "executorch/exir/passes/insert_write_back_for_buffers_pass.py, _insert_copy, and "
    "executorch/exir/passes/replace_view_copy_with_view_pass.py, ReplaceViewCopyWithViewPass.call",
    find=late_values,
    fix=clone_results,
    in_loop=UNKEPT,
)
QUIRKS = (WRITTEN_INPUTS, LOST_WRITE_BACK, SHARED_NEW_VALUE, STALE_OUTPUTS)
