"""The memory of weights, which methods may have in common, and which some of them write."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec

from etdev.edge.reference import Reference, written
from etdev.errors import SourceError, first_line
from etdev.graph.signature import stored_values
from etdev.schema.method import Method
from etdev.schema.tensors import SharedState
from etdev.upstream.fake_tensors import FakeTensor, is_traceable_wrapper_subclass


@frozen
class Place:
    """The memory of a weight: its storage, and its layout there from its first byte on."""

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

    def overlaps(self, other: Place) -> bool:
        """Return True if two weights have some of their memory in common."""
        here = self.storage == other.storage
        return here and self.first < other.end and other.first < self.end

    @property
    def end(self) -> int:
        """The byte behind the last one."""
        steps = zip(self.shape, self.stride, strict=True)
        elements = 1 + sum((size - 1) * stride for size, stride in steps)
        return self.first + elements * self.dtype.itemsize


@frozen
class Weight:
    """A weight that a method reads or writes."""

    method: str
    target: str
    size_bytes: int
    is_written: bool


def by_place(programs: Mapping[str, ExportedProgram]) -> dict[Place, list[Weight]]:
    """Return the weights that methods use by the memory that they are in, method by method."""
    places: dict[Place, list[Weight]] = {}
    for method, program in programs.items():
        names = set(written(program))
        # torch.export makes inputs of all buffers of a module, also for a method without a use.
        used = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
        for spec, value in weights_of(program):
            if spec.arg.name in used:
                target = str(spec.target)
                try:
                    place = Place.of(value)
                except NotImplementedError as error:
                    what = f"{target} has no memory that a program could keep ({first_line(error)})"
                    cure = (
                        "make it a dense tensor, and leave transforms such as torch.func.grad out"
                    )
                    raise SourceError(method, what, cure) from error
                weight = Weight(method, target, value.nbytes, target in names)
                places.setdefault(place, []).append(weight)
    return places


def shared_states(programs: Mapping[str, ExportedProgram]) -> list[SharedState]:
    """Return what exported methods share and write, in the order of the methods."""
    states = []
    for weights in by_place(programs).values():
        writers = dict.fromkeys(weight.method for weight in weights if weight.is_written)
        targets: dict[str, str] = {}
        for weight in weights:
            targets.setdefault(weight.method, weight.target)
        if writers and len(targets) > 1:
            states.append(SharedState(targets, tuple(writers), weights[0].size_bytes))
    return states


def references_of(
    methods: Mapping[str, Method],
    programs: Mapping[str, ExportedProgram],
    states: Sequence[SharedState],
    doubts: Mapping[str, str],
) -> dict[str, Reference]:
    """Remember the state of methods that were just exported, with what they share."""
    shared = {n: [s.targets[n] for s in states if n in s.targets] for n in programs}
    return {
        name: evolve(Reference.of(methods[name], program, shared[name]), doubt=doubts.get(name, ""))
        for name, program in programs.items()
    }


def overlaps(programs: Mapping[str, ExportedProgram]) -> list[tuple[Weight, Weight]]:
    """Return the weights that a method writes, each with one of another method that overlaps it."""
    places = by_place(programs)
    return [
        (one, other)
        for place, weights in places.items()
        if any(weight.is_written for weight in weights)
        for elsewhere, others in places.items()
        if place.overlaps(elsewhere) and place != elsewhere
        for one, other in itertools.product(weights, others)
        if one.is_written and one.method != other.method
    ]


def weights_of(program: ExportedProgram) -> Iterator[tuple[InputSpec, torch.Tensor]]:
    """Yield the weights of a program that have memory of their own."""
    values = stored_values(program)
    for spec in program.graph_signature.input_specs:
        value = values.get(spec.target or "")
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        # These have none: tensors without values, sparse ones, quantised ones of several tensors.
        placeless = isinstance(value, FakeTensor) or value.is_meta or value.layout != torch.strided
        if not placeless and not is_traceable_wrapper_subclass(value):
            yield spec, value
