"""Overlaps: buffers in one piece of memory, to which a method writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    """Make buffers that are one tensor one input, if the method writes to it.

    Raises:
        LoweringError: Buffers share memory otherwise.
    """
    written = {node.name for node in Writes(program.graph).places}
    same: dict[str, str] = {}
    for (spec, value), (other, earlier) in _neighbours(program):
        if written.isdisjoint((spec.arg.name, other.arg.name)):
            continue
        if _layout(value) == _layout(earlier):
            same.setdefault(spec.arg.name, other.arg.name)
        elif _overlap(value, earlier):
            raise LoweringError(
                "edge conversion",
                f"buffers {other.target!r} and {spec.target!r} share memory, the method writes to "
                "it, and a .pte would keep them apart",
                "register the whole tensor, and take views of it in the method",
            )
    return _without(program, same) if same else program


def _neighbours(program: ExportedProgram) -> Iterator[tuple[_Weight, _Weight]]:
    """Pairs of weights that are in one storage, the earlier one second."""
    values: Mapping[str, Any] = {**program.constants, **program.state_dict}
    storages: dict[int, list[_Weight]] = {}
    for spec in program.graph_signature.input_specs:
        value = values.get(spec.target or "")
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        # Neither has memory of its own: a fake, and a quantised weight made of several tensors.
        if not isinstance(value, FakeTensor) and not is_traceable_wrapper_subclass(value):
            weights = storages.setdefault(value.untyped_storage().data_ptr(), [])
            yield from (((spec, value), earlier) for earlier in weights)
            weights.append((spec, value))


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
