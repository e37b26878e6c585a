"""Comparison of a program with itself before a hook was called, or with what the hook returned."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import torch
from attrs import field, frozen
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.nodes import graph_modules
from etdev.graph.signature import stored_values
from etdev.upstream.fake_tensors import write_count

# Number of bytes of a tensor that are compared, or a few more.
_SAMPLES = 64


@frozen
class TensorWas:
    """A tensor as it was; any other object, such as an engine, counts by its identity.

    torch counts writes in place, but not those through `.data` or NumPy. Samples of the bytes show
    these, unless only few places are written.
    """

    value: Any = field(eq=id)
    count: int | None
    sample: bytes

    @classmethod
    def of(cls, value: Any) -> TensorWas:
        """Record a tensor as it is now."""
        count = write_count(value) if isinstance(value, torch.Tensor) else None
        return cls(value, count, _sample(value))


def _sample(value: Any) -> bytes:
    """Return a sample of bytes, spread over the memory of a CPU tensor."""
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    if not plain or value.device.type != "cpu":
        return b""
    storage = value.untyped_storage()
    # Read in place, since four calls of torch for each weight and hook were a tenth of the loop.
    data = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    # An odd step takes every byte of a number in turn.
    sample: bytes = data[:: len(data) // _SAMPLES | 1]
    return sample


@frozen(eq=False)
class Snapshot:
    """The parts of a program that a plugin may change in place by mistake; takes linear time."""

    # Its graphs and signature, by what a message calls them.
    parts: dict[str, list[Any]]
    # Each node with its op, arguments and metadata.
    nodes: list[tuple[Node, Any, dict[str, Any]]]
    # Its weights, by name.
    tensors: Mapping[str, TensorWas]

    @classmethod
    def of(cls, program: ExportedProgram) -> Snapshot:
        """Record a program as it is now."""
        graphs = [module.graph for module in graph_modules(program.graph_module)]
        nodes = [node for graph in graphs for node in graph.nodes]
        signature = program.graph_signature
        specs = (*signature.input_specs, *signature.output_specs)
        tensors = stored_values(program)
        return cls(
            {
                "the graph": [graphs, [(node, node.name) for node in nodes]],
                "the signature": [(s.kind, getattr(s.arg, "name", None), s.target) for s in specs],
            },
            [(node, (node.target, node.args, node.kwargs), dict(node.meta)) for node in nodes],
            {name: TensorWas.of(value) for name, value in tensors.items()},
        )

    def difference(self, program: ExportedProgram) -> str:
        """Return the first change of the program since, for a message; empty without one."""
        now = Snapshot.of(program)
        for part, was in self.parts.items():
            if now.parts[part] != was:
                return part
        for (node, call, meta), (_, new_call, new_meta) in zip(self.nodes, now.nodes, strict=True):
            if new_call != call:
                return f"the op or the arguments of {node.name!r}"
            same = {k for k in meta.keys() & new_meta.keys() if meta[k] is new_meta[k]}
            if other := (meta.keys() | new_meta.keys()) - same:
                return f"meta[{min(other)!r}] of {node.name!r}"
        if names := now.tensors.keys() ^ self.tensors.keys():
            return f"the state {min(names)!r}"
        for name, tensor in self.tensors.items():
            if now.tensors[name] != tensor:
                return f"the values of {name!r}"
        return ""


def name_inputs(program: ExportedProgram) -> None:
    """Give a deep copy's inputs the names that its signature has; torch calls `input` `input_1`."""
    nodes = program.graph.find_nodes(op="placeholder")
    for spec, node in zip(program.graph_signature.input_specs, nodes, strict=False):
        name = getattr(spec.arg, "name", "")
        if node.name == f"{name}_1":
            node.name = name


def interface_change(before: ExportedProgram, after: ExportedProgram) -> str:
    """Return `inputs` or `outputs` if a program takes or returns others than before; else "".

    Its last outputs may have become the new values of buffers.
    """
    for side in ("inputs", "outputs"):
        old, new = (_interface(program, f"user_{side}") for program in (before, after))
        gone = before.graph_signature.user_outputs[len(new) :] if side == "outputs" else ()
        if after.graph_signature.buffers_to_mutate.keys() >= {*gone}:
            old = old[: len(old) - len(gone)]
        # A deep copy of a program has no values for its inputs.
        pairs = zip(old, new, strict=False)
        if len(old) != len(new) or any(a and b and a != b for a, b in pairs):
            return side
    return ""


def _interface(program: ExportedProgram, side: str) -> list[Any]:
    """Return dtype and sizes of the values that a method takes or returns, if they are known.

    Symbols have other names in a program that was exported again.
    """
    known = {node.name: node.meta.get("val") for node in program.graph.nodes}
    values = [known.get(str(name)) for name in getattr(program.graph_signature, side)]
    return [
        isinstance(value, torch.Tensor)
        and (value.dtype, [size if isinstance(size, int) else "?" for size in value.shape])
        for value in values
    ]
