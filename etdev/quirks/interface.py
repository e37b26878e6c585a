"""Inputs, outputs and weights that ExecuTorch's runtime can't be given or can't return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Node

from etdev.edge.reference import written
from etdev.errors import SourceError
from etdev.graph.inlining import call
from etdev.graph.ops import ORDERED
from etdev.graph.rebuild import copy_graph, rebuilt, without_inputs
from etdev.graph.signature import renamed, stored_values, unwritten_constants
from etdev.schema.quirk import Nodes, Quirk, Rejection
from etdev.schema.stages import DECOMPOSE, FINISH, PREPARE, VALIDATE
from etdev.upstream.edge import with_parts
from etdev.upstream.trees import pytree

_ON_HOST = "move the model with .cpu() before it is exported"
InputArgument = SymIntArgument | SymFloatArgument | SymBoolArgument | ConstantArgument
_NUMBERS = (SymIntArgument, SymFloatArgument, SymBoolArgument)


def sparse_tensors(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """Yield the weights and inputs that are not dense, with their layouts."""
    users = set(program.graph_signature.user_inputs)
    inputs = [node for node in program.graph.find_nodes(op="placeholder") if node.name in users]
    given = {f"input {node.name!r}": node.meta.get("val") for node in inputs}
    for name, value in (*stored_values(program).items(), *given.items()):
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            yield name, str(value.layout).removeprefix("torch.")


def away_from_host(program: ExportedProgram) -> Iterator[str]:
    """Yield the weights whose memory is that of a GPU or another device; "meta" has none."""
    values, here = stored_values(program).items(), ("cpu", "meta")
    yield from (n for n, v in values if isinstance(v, torch.Tensor) and v.device.type not in here)


def to_host(program: ExportedProgram, found: Sequence[str]) -> ExportedProgram:
    """Copy weights to the host; the devices of the graph's values, which plugins read, stay."""
    program, copies = rebuilt(program, copy_graph(program.graph)), dict[int, torch.Tensor]()
    for values in (program.state_dict, program.constants):
        for name in values.keys() & set(found):
            value: Any = values[name]
            # One tensor under two names stays one.
            host = copies.setdefault(id(value), value.detach().cpu())
            is_parameter = isinstance(value, torch.nn.Parameter)
            values[name] = torch.nn.Parameter(host, value.requires_grad) if is_parameter else host
    return program


def python_inputs(
    program: ExportedProgram,
) -> Iterator[InputArgument]:
    """Yield the inputs that are numbers with a symbol, or strings."""
    for spec in program.graph_signature.input_specs:
        text = isinstance(getattr(spec.arg, "value", None), str)
        if spec.kind == InputKind.USER_INPUT and (text or isinstance(spec.arg, _NUMBERS)):
            yield spec.arg


def no_tensors(program: ExportedProgram) -> list[ExportedProgram]:
    """Return a program whose method neither returns nor keeps a tensor."""
    results = [spec.arg for spec in program.graph_signature.output_specs]
    returns = any(isinstance(result, TensorArgument) for result in results)
    return [] if returns or any(written(program)) else [program]


def empty_weights(program: ExportedProgram) -> list[Node]:
    """Return the constants without elements that the method never writes."""
    constants = unwritten_constants(program)
    inputs = [n for n in program.graph.find_nodes(op="placeholder") if n.name in constants]
    return [node for node in inputs if 0 in getattr(node.meta["val"], "shape", ())]


def make_empty(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Make each of them where it is read first."""
    graph, names, empty = copy_graph(program.graph), {}, {node.name for node in found}
    for node in [node for node in graph.nodes if node.name in empty]:
        value, first = node.meta["val"], min(node.users, default=graph.output_node())
        with graph.inserting_before(first):
            full = torch.ops.aten.full.default
            made = call(node, full, list(value.shape), 0, dtype=value.dtype)
        node.replace_all_uses_with(made)
        names[node.name] = made.name
    outputs = [renamed(spec, names) for spec in program.graph_signature.output_specs]
    return without_inputs(program, graph, empty, outputs)


def without_checks(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Take calls that check a matrix, in an order given by tokens, out of a program."""
    names, graph = {node.name for node in found}, copy_graph(program.graph)
    for node in [node for node in graph.nodes if node.name in names]:
        for token in list(node.users):
            token.replace_all_uses_with(node.args[0])
            graph.erase_node(token)
        graph.erase_node(node)
    signature, tokens = program.graph_signature, set()
    outputs = signature.output_specs
    if not graph.find_nodes(op="call_function", target=ORDERED):
        # Nothing is ordered by the token any more.
        results: Any = zip(outputs, graph.output_node().args[0], strict=True)  # type: ignore[arg-type]
        kept = [(spec, result) for spec, result in results if spec.kind != OutputKind.TOKEN]
        outputs = [spec for spec, _ in kept]
        graph.output_node().args = (tuple(result for _, result in kept),)
        tokens = {s.arg.name for s in signature.input_specs if s.kind == InputKind.TOKEN}
    graph.eliminate_dead_code()
    return without_inputs(program, graph, tokens, outputs)


def unwritable_nesting(program: ExportedProgram) -> Iterator[pytree.TreeSpec]:
    """Yield the nesting of inputs and outputs, if that can't be written into a .pte.

    It has types of the user's own, or the types that `torch.sort` and `torch.max` return.
    """
    call = program.module_call_graph[0].signature
    specs = (call.in_spec, call.out_spec) if call else ()
    return (spec for spec in specs if not _can_be_written(spec))


def _can_be_written(spec: pytree.TreeSpec) -> bool:
    try:
        pytree.treespec_dumps(spec)
    except Exception:  # Whatever a user's own type does when it is asked.
        return False
    return True


def flatten(program: ExportedProgram, found: Sequence[pytree.TreeSpec]) -> ExportedProgram:
    """Make inputs or outputs flat whose nesting can't be written; the rest stays as it is."""
    entry, *others = program.module_call_graph
    call = entry.signature
    assert call is not None
    inputs, outputs = call.in_spec, call.out_spec
    if any(spec is inputs for spec in found):
        _, inputs = pytree.tree_flatten((tuple(range(inputs.num_leaves)), {}))
    if any(spec is outputs for spec in found):
        _, outputs = pytree.tree_flatten(tuple(range(outputs.num_leaves)))
    flat = ModuleCallSignature(call.inputs, call.outputs, inputs, outputs, call.forward_arg_names)
    entries = [ModuleCallEntry(entry.fqn, flat), *others]
    return with_parts(program, module_call_graph=entries)


SPARSE_TENSORS = Quirk(
    name="sparse-tensors",
    stage=(PREPARE, VALIDATE),
    summary="A weight or input that is not dense can't be stored in a .pte.",
    upstream="report written 2026-11-27; executorch/exir/tensor.py, TensorSpec.from_tensor",
    find=sparse_tensors,
    refusal=Rejection(
        "{found[0]} has the layout {found[1]}, and ExecuTorch has dense tensors only",
        "make it dense, as x.to_dense() does",
        error=SourceError,
    ),
)
WEIGHTS_ELSEWHERE = Quirk(
    name="weights-elsewhere",
    stage=VALIDATE,
    summary="The bytes of a weight are read at its address, and a GPU's address crashes Python.",
    upstream="pytorch/executorch#21545; executorch/exir/emit/_emitter.py, _tensor_spec_to_evalue",
    find=away_from_host,
    fix=to_host,
    refusal=Rejection("weights {names} can't be copied to the host: {why}", _ON_HOST),
    in_loop=Rejection(
        "weights {names} are not in the host's memory, where ExecuTorch reads", _ON_HOST
    ),
)
PYTHON_INPUTS = Quirk(
    name="python-inputs",
    stage=PREPARE,
    summary="An input that is a string, or a number with a symbol, can't be given to the runtime.",
    upstream="pytorch/executorch#3992, #8539; executorch/runtime/executor/method.cpp, "
    "Method::set_input, and executorch/extension/pybindings/pybindings.cpp, run_method",
    find=python_inputs,
    refusal=Rejection(
        "input {found.name!r} of method {method!r} is a string, or a Python number that may "
        "change, which ExecuTorch's runtime can't be given",
        "make it a tensor and read it with .item(), or leave it out of the method's inputs",
    ),
)
NO_TENSOR_OUTPUTS = Quirk(
    name="no-tensor-outputs",
    stage=PREPARE,
    summary="Memory planning fails on a method that neither returns nor keeps a tensor.",
    upstream="pytorch/executorch#22477 (PR #22479); executorch/exir/memory_planning.py, "
    "Verifier.verify_graph_input_output",
    find=no_tensors,
    refusal=Rejection(
        "method {method!r} returns no tensor, and ExecuTorch plans memory only for methods that "
        "return or keep one",
        "return a tensor, such as x.argmax() instead of x.argmax().item()",
    ),
)
EMPTY_WEIGHTS = Quirk(
    name="empty-weights",
    stage=(DECOMPOSE, FINISH),
    summary="A weight without elements has no place in a .pte, and the runtime refuses to load it.",
    upstream="pytorch/executorch#22788; executorch/exir/emit/_emitter.py, _save_new_const_tensor",
    find=empty_weights,
    fix=make_empty,
)
UNWRITABLE_NESTING = Quirk(
    name="unwritable-nesting",
    stage=VALIDATE,
    summary="Inputs or outputs nested in types of the user's own, or in those of torch.sort, fail "
    "when their nesting is written as JSON.",
    upstream="pytorch/pytorch#197104 (PR #197128); executorch/exir/emit/_emitter.py, "
    "create_container_str",
    fixed="torch 2.15",
    find=unwritable_nesting,
    fix=flatten,
)
MATRIX_CHECKS = Quirk(
    name="matrix-checks",
    stage=(DECOMPOSE, FINISH),
    summary="The check that a matrix could be factorised is an op with effects, without a kernel.",
    upstream="report written 2026-11-27; torch/_higher_order_ops/effects.py, with_effects, and "
    "executorch/exir/verification/verifier.py, check_valid_op",
    # What is computed of a matrix that can't be inverted or factorised is infinite or NaN.
    find=Nodes((ORDERED,), lambda n: n.args[1] is torch.ops.aten._linalg_check_errors.default),
    fix=without_checks,
)
QUIRKS = (
    SPARSE_TENSORS,
    WEIGHTS_ELSEWHERE,
    PYTHON_INPUTS,
    NO_TENSOR_OUTPUTS,
    EMPTY_WEIGHTS,
    UNWRITABLE_NESTING,
    MATRIX_CHECKS,
)
