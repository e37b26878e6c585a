"""Models in text: the body of a `forward`, with its inputs, weights and submodules declared.

    x: float32[rows<=8, 4]          an input, here with a dynamic size
    w: param float32[4, 4]          a parameter
    b: buffer float32[4] = 2.0      a buffer and its value; without one it is of ones
    norm: LayerNorm(4)              a module of torch.nn
    inner(y):                       a module of its own, whose path is `inner`
        return y + 1
    return norm(inner(x @ w + b))

The rest is Python, in which `torch`, `aten` and `F` are known. A single line such as `nets.mlp` is
a function of the package `support.models`, which returns a module with its inputs, or a program.
"""

from __future__ import annotations

import functools
import importlib
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import torch
from attrs import define, field
from torch import nn
from torch.export import Dim, ExportedProgram

_NAMED = re.compile(r"(\w+)\.(\w+)")
_TENSOR = re.compile(r"(\w+): (?:(param|buffer) )?(\w+)\[(.*?)\](?: = (.+))?")
_MODULE = re.compile(r"(\w+): (\w+\(.*\))")
_BLOCK = re.compile(r"(\w+)\((.*)\):")
_DYNAMIC = re.compile(r"(\w+)<=(\d+)")
# What a dynamic size is in the example.
_SIZE = 4


@functools.lru_cache
def program(text: str) -> ExportedProgram:
    """The program of a model in text."""
    if named := _NAMED.fullmatch(text.strip()):
        model = getattr(importlib.import_module(f"support.models.{named[1]}"), named[2])()
        return model if isinstance(model, ExportedProgram) else _exported(*model)
    body = Body.read(text)
    shapes = {name: value.dynamic for name, value in body.inputs.items()}
    return _exported(
        build(body, list(body.inputs)),
        tuple(value.example() for value in body.inputs.values()),
        dynamic_shapes=shapes,
    )


def _exported(module: nn.Module, inputs: tuple[Any, ...], **options: Any) -> ExportedProgram:
    # Control flow can't be exported with gradients.
    with torch.no_grad():
        return torch.export.export(module.eval(), inputs, **options)


@define
class Value:
    """A declared tensor."""

    dtype: torch.dtype
    sizes: list[str]
    value: float = 1.0

    @property
    def dynamic(self) -> dict[int, Any]:
        """The dynamic sizes, as torch.export takes them."""
        sizes = enumerate(map(_DYNAMIC.fullmatch, self.sizes))
        return {at: Dim(size[1], max=int(size[2])) for at, size in sizes if size}

    def example(self) -> torch.Tensor:
        """The tensor, which is the same everywhere."""
        shape = [_SIZE if "<=" in size else int(size) for size in self.sizes]
        return torch.full(shape, self.value, dtype=self.dtype)


@define
class Body:
    """The declarations and the code of a module."""

    inputs: dict[str, Value] = field(factory=dict)
    members: dict[str, Any] = field(factory=dict)
    code: list[str] = field(factory=list)

    @classmethod
    def read(cls, text: str) -> Body:
        """The body written in a text."""
        body, lines = cls(), text.strip().splitlines()
        while lines:
            line = lines.pop(0)
            if tensor := _TENSOR.fullmatch(line):
                body._declare(*tensor.groups())
            elif module := _MODULE.fullmatch(line):
                body.members[module[1]] = eval(f"nn.{module[2]}", {"nn": nn})
            elif block := _BLOCK.fullmatch(line):
                inner = []
                while lines and lines[0].startswith(" "):
                    inner.append(lines.pop(0))
                read = cls.read(textwrap.dedent("\n".join(inner)))
                body.members[block[1]] = build(read, block[2].split(", "))
            else:
                body.code.append(line)
        return body

    def _declare(self, name: str, kind: str | None, dtype: str, sizes: str, value: str) -> None:
        tensor = Value(getattr(torch, dtype), sizes.split(", "), float(value or 1))
        if kind is None:
            self.inputs[name] = tensor
        else:
            self.members[name] = tensor.example()
        if kind == "param":
            self.members[name] = nn.Parameter(self.members[name])


def build(body: Body, arguments: Sequence[str]) -> nn.Module:
    """The module that runs a body."""
    lines = [f"{name} = self.{name}" for name in body.members] + body.code
    code = textwrap.indent("\n".join(lines), "    ")
    known = {"torch": torch, "aten": torch.ops.aten, "F": nn.functional}
    exec(f"def forward(self, {', '.join(arguments)}):\n{code}", known)
    # A class of its own, since graph inputs are called as the arguments of forward.
    made = type("Text", (nn.Module,), {"forward": known["forward"]})()
    for name, member in body.members.items():
        if isinstance(member, nn.Module | nn.Parameter):
            setattr(made, name, member)
        else:
            made.register_buffer(name, member)
    return made
