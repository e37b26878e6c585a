"""Writes in place that torch loses when it makes a program functional."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec
from torch.fx import Node

from etdev.edge.shared_state import Place, weights_of
from etdev.graph.inlining import call
from etdev.graph.ops import owner_of, places_written, written_by, written_through
from etdev.graph.rebuild import copy_graph, with_changed, without_inputs
from etdev.schema.quirk import Nodes, Quirk, Rejection
from etdev.schema.stages import FUNCTIONALISE
from etdev.upstream.operators import OpOverload, base_name

aten = torch.ops.aten
# Two weights in one piece of memory; the method writes one of them.
Pair = tuple[InputSpec, InputSpec]
_DROPOUTS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")


def aliased_buffers(program: ExportedProgram) -> Iterator[Pair]:
    """Yield the inputs that are the same tensor as one before them, and are written."""
    first: dict[Place, InputSpec] = {}
    for spec, place, _ in _weights_in_written(program):
        kept = first.setdefault(place, spec)
        if kept is not spec:
            yield kept, spec


def overlapping_buffers(program: ExportedProgram) -> Iterator[Pair]:
    """Yield the weights that share some of their memory, and that the method writes."""
    pairs = itertools.combinations(_weights_in_written(program), 2)
    for (one, place, is_written), (two, other, other_is_written) in pairs:
        if place.overlaps(other) and (is_written or other_is_written):
            yield one, two


def _weights_in_written(program: ExportedProgram) -> list[tuple[InputSpec, Place, bool]]:
    """Return the weights in storages that are written, and whether they themselves are."""
    names = {node.name for node in places_written(program.graph)}
    places = ((spec, Place.of(value)) for spec, value in weights_of(program))
    weights = [(spec, place, spec.arg.name in names) for spec, place in places]
    storages = {place.storage for _, place, is_written in weights if is_written}
    return [weight for weight in weights if weight[1].storage in storages]


def merge_inputs(program: ExportedProgram, found: Sequence[Pair]) -> ExportedProgram:
    """Make buffers that are one tensor one input of the program."""
    same = {other.arg.name: kept.arg.name for kept, other in found}
    graph = copy_graph(program.graph)
    inputs = {node.name: node for node in graph.find_nodes(op="placeholder")}
    for name, kept in same.items():
        inputs[name].replace_all_uses_with(inputs[kept])
    return without_inputs(program, graph, same)


def reused_sources(program: ExportedProgram) -> Iterator[Node]:
    """Yield the copies of a value that is written later, or copied a second time."""
    written = places_written(program.graph)
    sources: set[Node] = set()
    for position, node in enumerate(program.graph.nodes):
        if node.target is not aten.copy_.default or not isinstance(node.args[1], Node):
            continue
        target, source = node.args[0], node.args[1]
        if target.meta["val"].dtype != source.meta["val"].dtype:
            # The conversion is a new value.
            continue
        places = written.get(owner_of(source), ())
        changed = any(place > position for place in places)
        if changed or source in sources or (places and _is_whole_input(source)):
            yield node
        sources.add(source)


def _give(copy: Node, op: OpOverload, *args: object, **options: object) -> None:
    """Copy the result of an op on the value that was copied."""
    source: Any = copy.args[1]
    copy.update_arg(1, call(source, op, source, *args, **options))


def _is_converting_copy(node: Node) -> bool:
    """Return True if a node copies to all of a buffer a value in another dtype or shape."""
    if not isinstance(node.args[1], Node):
        return False
    target, source = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]
    same = target.dtype == source.dtype and target.shape == source.shape
    return not same and _is_whole_input(node.args[0])  # type: ignore[arg-type]


def _is_whole_input(node: Node) -> bool:
    """Return True if a node's value is all of an input, perhaps just written."""
    while node.op == "call_function" and next(written_by(node), None) is not None:
        node = node.all_input_nodes[0]
    return node.op == "placeholder"


def _convert_source(copy: Node) -> None:
    """Convert and expand the value that is copied."""
    wanted, given = (value.meta["val"] for value in copy.args[:2])  # type: ignore[union-attr]
    if given.dtype != wanted.dtype:
        _give(copy, aten._to_copy.default, dtype=wanted.dtype)
    if given.shape != wanted.shape:
        _give(copy, aten.expand.default, list(wanted.shape))


def idle_dropouts(program: ExportedProgram) -> list[Node]:
    """Return the dropouts that return what they are given, if that is written later."""
    nodes = (n for n in written_through(program.graph) if base_name(n.target) in _DROPOUTS)
    return [node for node in nodes if len(node.args) == 3 and not all(node.args[1:])]


def _alias(node: Node) -> None:
    """Make a dropout an op that shares memory with its input."""
    node.target, node.args = aten.alias.default, node.args[:1]


ALIASED_BUFFERS = Quirk(
    name="aliased-buffers",
    stage=FUNCTIONALISE,
    summary="Buffers that are one tensor become several in a .pte, and what is written to one of "
    "them is not seen in the others.",
    upstream="report written 2026-11-27; torch/export/_trace.py, _export_to_aten_ir_make_fx",
    find=aliased_buffers,
    fix=merge_inputs,
)
OVERLAPPING_BUFFERS = Quirk(
    name="overlapping-buffers",
    stage=FUNCTIONALISE,
    summary="Buffers that overlap in part are kept apart in a .pte, though one of them is written.",
    upstream="report written 2026-11-27; executorch/exir/emit/_emitter.py, placeholder",
    find=overlapping_buffers,
    refusal=Rejection(
        "buffers {found[0].target!r} and {found[1].target!r} share memory, the method writes "
        "to it, and a .pte would keep them apart",
        "register the whole tensor, and take views of it in the method",
    ),
)
REUSED_SOURCES = Quirk(
    name="reused-sources",
    stage=FUNCTIONALISE,
    summary="What is copied to a buffer is taken for the buffer's new value, though it is written "
    "later or copied to a second buffer.",
    upstream="report written 2026-11-27; torch/_functorch/_aot_autograd/functional_utils.py, "
    "has_data_mutation and torch/_export/verifier.py, _verify_exported_program_signature",
    find=reused_sources,
    fix=partial(with_changed, change=lambda copy: _give(copy, aten.clone.default)),
)
CONVERTING_COPIES = Quirk(
    name="converting-copies",
    stage=FUNCTIONALISE,
    summary="What is copied to all of a buffer keeps its own dtype and shape where the buffer is "
    "read again.",
    upstream="report written 2026-11-27; torch/_decomp/decompositions.py, copy",
    find=Nodes((aten.copy_.default,), _is_converting_copy),
    fix=partial(with_changed, change=_convert_source),
)
IDLE_DROPOUTS = Quirk(
    name="idle-dropouts",
    stage=FUNCTIONALISE,
    summary="A dropout that drops nothing returns what it is given, and is decomposed into a copy "
    "in which later writes are lost.",
    upstream="report written 2026-11-27; torch/_decomp/decompositions.py, native_dropout",
    fixed="torch 2.14",
    find=idle_dropouts,
    fix=partial(with_changed, change=_alias),
)
QUIRKS = (
    ALIASED_BUFFERS,
    # Of buffers that are merged now, nothing is left that overlaps.
    OVERLAPPING_BUFFERS,
    REUSED_SOURCES,
    CONVERTING_COPIES,
    IDLE_DROPOUTS,
)
