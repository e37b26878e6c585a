"""Shapes of the results of a delegate, without running its program.

ExecuTorch's emission traces a method twice, and runs each delegate's program in fake tensors to see
the shapes of its results. To run it, torch first makes a module of it, which is half of emission
where there are many delegates.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node
from torch.nn import Module

from etdev.upstream.fake_tensors import FakeTensor, active_fake_mode
from etdev.upstream.shortcuts.switch import Shortcut
from etdev.upstream.trees import pytree

DELEGATES = Shortcut("shapes of delegates' results without running their programs")


def record_shapes(program: ExportedProgram) -> ExportedProgram:
    """Return a shallow copy of a delegate's program that knows its shapes without being run."""
    if not DELEGATES.is_on:
        return program
    copied = copy.copy(program)
    copied.__class__ = _Program
    return copied


class _Program(ExportedProgram):
    def module(self, *args: Any, **kwargs: Any) -> Module:  # type: ignore[override]
        build = functools.partial(super().module, *args, **kwargs)
        return _Call(self, build) if active_fake_mode() else build()


class _Call(Module):
    def __init__(self, program: ExportedProgram, build: Callable[[], Module]) -> None:
        super().__init__()
        self._program, self._build = program, build

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        results = None if kwargs else _results(self._program, args)
        if results is None:
            return self._build()(*args, **kwargs)
        return pytree.tree_unflatten(results, self._program.call_spec.out_spec)


def _results(program: ExportedProgram, given: Sequence[Any]) -> list[torch.Tensor] | None:
    """Return fake results, given the inputs that the program was made for; else None."""
    if any(spec.kind != OutputKind.USER_OUTPUT for spec in program.graph_signature.output_specs):
        return None
    users = set(program.graph_signature.user_inputs)
    inputs = [n for n in program.graph.find_nodes(op="placeholder") if n.name in users]
    planned = [_described(node.meta.get("val")) for node in inputs]
    outputs: Sequence[Any] = program.graph.output_node().args[0]
    computed = [isinstance(node, Node) and node.op == "call_function" for node in outputs]
    if None in planned or planned != list(map(_described, given)) or not all(computed):
        return None
    described = [_described(node.meta["val"]) for node in outputs]
    values = [one for one in described if one is not None]
    if len(values) != len(outputs):
        return None
    return [
        torch.empty_strided(*size, dtype=kind, device=device) for *size, kind, device, _ in values
    ]


def _described(value: object) -> tuple[Any, ...] | None:
    """Return shape, strides, dtype, device and mode of a fake tensor of fixed sizes; else None."""
    if type(value) is not FakeTensor:
        return None
    shape, stride = tuple(value.shape), value.stride()
    if not all(isinstance(size, int) for size in (*shape, *stride)):
        return None
    return shape, stride, value.dtype, value.device, id(value.fake_mode)
