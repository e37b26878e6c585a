"""Buffers that several methods have in common in eager PyTorch, and that one of them writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec

from etdev.edge.reference import Reference, written
from etdev.edge.source import Method
from etdev.schema.tensors import SharedState
from etdev.upstream.fake_tensors import FakeTensor, is_traceable_wrapper_subclass


@frozen
class Place:
    """The memory of a weight: its storage, and its layout there."""

    storage: int
    first: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, value: torch.Tensor) -> Place:
        start = int(value.storage_offset()) * value.element_size()
        storage = value.untyped_storage().data_ptr()
        return cls(storage, start, tuple(value.shape), tuple(value.stride()), value.dtype)


@frozen
class Overlap:
    """A buffer that a method writes, and one of another method that has part of its memory."""

    target: str
    writer: str
    other: str
    other_target: str


def shared_states(programs: Mapping[str, ExportedProgram]) -> list[SharedState]:
    """Return what exported methods share and write, in the order of the methods."""
    held, writers = _held(programs)
    return [
        SharedState(
            {method: target for method, (target, _) in owners.items()},
            tuple(writers[place]),
            next(value.nbytes for _, value in owners.values()),
        )
        for place, owners in held.items()
        if place in writers and len(owners) > 1
    ]


def references_of(
    methods: Mapping[str, Method],
    programs: Mapping[str, ExportedProgram],
    states: Sequence[SharedState],
) -> dict[str, Reference]:
    """Remember the state of methods that were just exported, with what they share."""
    shared = {n: [s.targets[n] for s in states if n in s.targets] for n in programs}
    return {n: Reference.of(methods[n], program, shared[n]) for n, program in programs.items()}


def overlaps(programs: Mapping[str, ExportedProgram]) -> Iterator[Overlap]:
    """Yield the buffers that share only some of their memory with one that a method writes."""
    held, writers = _held(programs)
    for place, methods in writers.items():
        start, end = span(next(value for _, value in held[place].values()))
        for other, owners in held.items():
            first, last = span(next(value for _, value in owners.values()))
            if other == place or other.storage != place.storage or end <= first or last <= start:
                continue
            for writer, method in itertools.product(methods, owners):
                if writer != method:
                    yield Overlap(held[place][writer][0], writer, method, owners[method][0])


def weights_of(program: ExportedProgram) -> Iterator[tuple[InputSpec, torch.Tensor]]:
    """Yield the weights of a program that have memory of their own."""
    values: Mapping[str, Any] = {**program.constants, **program.state_dict}
    for spec in program.graph_signature.input_specs:
        value = values.get(spec.target or "")
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        # These have none: tensors without values, sparse ones, quantised ones of several tensors.
        placeless = isinstance(value, FakeTensor) or value.is_meta or value.layout != torch.strided
        if not placeless and not is_traceable_wrapper_subclass(value):
            yield spec, value


def span(value: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor in its storage, and the one behind its last."""
    steps = zip(value.shape, value.stride(), strict=True)
    elements = 1 + sum((int(size) - 1) * int(stride) for size, stride in steps)
    start = int(value.storage_offset()) * value.element_size()
    return start, start + elements * value.element_size()


def _held(
    programs: Mapping[str, ExportedProgram],
) -> tuple[dict[Place, dict[str, tuple[str, torch.Tensor]]], dict[Place, dict[str, None]]]:
    """Return the first weight of each method at each place, and the methods that write there."""
    held: dict[Place, dict[str, tuple[str, torch.Tensor]]] = {}
    writers: dict[Place, dict[str, None]] = {}
    for method, program in programs.items():
        names = set(written(program))
        # torch.export makes inputs of all buffers of a module, also for a method without a use.
        used = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
        for spec, value in weights_of(program):
            if spec.arg.name not in used:
                continue
            place, target = Place.of(value), str(spec.target)
            held.setdefault(place, {}).setdefault(method, (target, value))
            if target in names:
                writers.setdefault(place, {})[method] = None
    return held, writers
