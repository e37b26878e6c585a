"""Shared state: buffers that methods have in common in eager PyTorch, and each has in a .pte."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram

from etdev.errors import EtdevWarning, LoweringError


def tell_of_shared_state(
    sources: Mapping[str, ExportedProgram], edge: Mapping[str, ExportedProgram], strict: bool
) -> None:
    """Warn of a buffer that one method writes and another one has, too.

    Args:
        sources: The programs of the methods as they were exported.
        edge: The same in the edge dialect, whose signatures say what is written.
        strict: It is an error.

    Raises:
        LoweringError: This is strict, and there is one.
    """
    for target, writer, other in _shared(sources, edge):
        error = LoweringError(
            "several methods",
            f"{writer!r} writes buffer {target!r}, which {other!r} has, too; in a .pte each method "
            f"has its own, so that {other!r} never sees what {writer!r} writes",
            "make them one method, pass the state in and out, or plan memory with ExecuTorch's "
            "MemoryPlanningPass(share_mutable_buffers=True) and load it in C++ with shared arenas",
        )
        if strict:
            raise error
        warnings.warn(str(error), EtdevWarning, stacklevel=2)


def _shared(
    sources: Mapping[str, ExportedProgram], edge: Mapping[str, ExportedProgram]
) -> Iterator[tuple[str, str, str]]:
    """The first shared buffer of each two methods: its target, who writes it, who else has it."""
    held = {method: _buffers(program) for method, program in sources.items()}
    told = set()
    for writer, program in edge.items():
        for target in program.graph_signature.buffers_to_mutate.values():
            place = held[writer].get(target)
            for other, buffers in held.items():
                pair = frozenset((writer, other))
                if other != writer and pair not in told and place in buffers.values():
                    told.add(pair)
                    yield target, writer, other


def _buffers(program: ExportedProgram) -> dict[str, int]:
    """Where the buffers that a program reads are in memory, by target."""
    values = {**program.constants, **program.state_dict}
    buffers = {}
    for target in program.graph_signature.inputs_to_buffers.values():
        value = values.get(target)
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and value.numel():
            buffers[target] = value.untyped_storage().data_ptr()
    return buffers
