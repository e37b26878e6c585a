"""Stored tensors: the weights and inputs that a .pte can hold, which are dense and have values."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram

from etdev.errors import SourceError


def refuse_without_values(method: str, program: ExportedProgram) -> None:
    """Refuse weights without values. A program that has some can be planned, but not compiled.

    Raises:
        SourceError: There is one.
    """
    for name, value in _constants(program):
        if isinstance(value, FakeTensor):
            what, cure = "it was made under FakeTensorMode", "make the model outside of it"
        elif value.is_meta:
            what, cure = "it is on the meta device", "load the weights first, or delete it"
        else:
            continue
        raise SourceError(method, f"{name} has no values: {what}", cure)


def refuse_layouts(method: str, program: ExportedProgram) -> None:
    """Refuse weights and inputs that are not dense, such as sparse ones.

    Raises:
        SourceError: There is one.
    """
    users = set(program.graph_signature.user_inputs)
    inputs = program.graph.find_nodes(op="placeholder")
    given = [
        (f"input {node.name!r}", node.meta.get("val")) for node in inputs if node.name in users
    ]
    for name, value in (*_constants(program), *given):
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            kind = str(value.layout).removeprefix("torch.")
            what = f"{name} has the layout {kind}, and ExecuTorch has dense tensors only"
            raise SourceError(method, what, "make it dense, as x.to_dense() does")


def _constants(program: ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in {**program.constants, **program.state_dict}.items():
        if isinstance(value, torch.Tensor):
            yield name, value
