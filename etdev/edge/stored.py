"""Weights without values, which a .pte can't hold."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram

from etdev.errors import SourceError
from etdev.upstream.fake_tensors import FakeTensor


def refuse_without_values(method: str, program: ExportedProgram) -> None:
    """Refuse a program that has weights without values; it can be planned, but not compiled.

    Raises:
        SourceError: A weight has no values.
    """
    for name, value in _constants(program):
        if isinstance(value, FakeTensor):
            what, cure = "it was made under FakeTensorMode", "make the model outside of it"
        elif value.is_meta:
            what, cure = "it is on the meta device", "load the weights first, or delete it"
        else:
            continue
        raise SourceError(method, f"{name} has no values: {what}", cure)


def _constants(program: ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in {**program.constants, **program.state_dict}.items():
        if isinstance(value, torch.Tensor):
            yield name, value
