"""Overlaps: buffers in one piece of memory, to which a method writes."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputSpec
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from etdev.edge.writes import Writes
from etdev.errors import LoweringError
from etdev.graph.rebuild import copy_graph, rebuilt

_Weight = tuple[InputSpec, torch.Tensor]


def with_merged_buffers(program: ExportedProgram) -> ExportedProgram:
    """Make buffers that are one tensor one input, if the method writes to it by any of its names.

    Raises:
        LoweringError: Buffers share memory otherwise.
    """
    written = {node.name for node in Writes(program.graph).places}
    same: dict[str, str] = {}
    for weights in _storages(program):
        if written.isdisjoint(spec.arg.name for spec, _ in weights):
            continue
        kept: dict[Any, _Weight] = {}
        for spec, value in weights:
            first, _ = kept.setdefault(_layout(value), (spec, value))
            if first is not spec:
                same[spec.arg.name] = first.arg.name
        _refuse_overlaps(list(kept.values()), {same.get(name, name) for name in written})
    return _without(program, same) if same else program


def _refuse_overlaps(weights: Sequence[_Weight], written: Container[str]) -> None:
    for (one, value), (two, other) in itertools.combinations(weights, 2):
        if (one.arg.name in written or two.arg.name in written) and _overlap(value, other):
            raise LoweringError(
                "edge conversion",
                f"buffers {one.target!r} and {two.target!r} share memory, the method writes to "
                "it, and a .pte would keep them apart",
                "register the whole tensor, and take views of it in the method",
            )


def _storages(program: ExportedProgram) -> Iterable[Sequence[_Weight]]:
    """The weights that are in one storage, for each storage."""
    values: Mapping[str, Any] = {**program.constants, **program.state_dict}
    storages: dict[int, list[_Weight]] = {}
    for spec in program.graph_signature.input_specs:
        value = values.get(spec.target or "")
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        # Neither has memory of its own: a fake, and a quantised weight made of several tensors.
        if not isinstance(value, FakeTensor) and not is_traceable_wrapper_subclass(value):
            storages.setdefault(value.untyped_storage().data_ptr(), []).append((spec, value))
    return storages.values()


def _layout(value: torch.Tensor) -> tuple[Any, ...]:
    return value.storage_offset(), value.shape, value.stride(), value.dtype


def _overlap(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors of one storage have a byte in common, by the range that each spans."""
    (start, end), (first, last) = _span(one), _span(two)
    return start < last and first < end


def _span(value: torch.Tensor) -> tuple[int, int]:
    steps = zip(value.shape, value.stride(), strict=True)
    elements = 1 + sum((int(size) - 1) * int(stride) for size, stride in steps)
    start = int(value.storage_offset()) * value.element_size()
    return start, start + elements * value.element_size()


def _without(program: ExportedProgram, same: Mapping[str, str]) -> ExportedProgram:
    """A program without some inputs, with others in their place that come before them."""
    graph = copy_graph(program.graph)
    inputs = {node.name: node for node in graph.find_nodes(op="placeholder")}
    for name, kept in same.items():
        inputs[name].replace_all_uses_with(inputs[kept])
        graph.erase_node(inputs[name])
    signature = program.graph_signature
    specs = [spec for spec in signature.input_specs if spec.arg.name not in same]
    outputs = list(signature.output_specs)
    return rebuilt(program, graph, ExportGraphSignature(specs, outputs), program.graph_module)
