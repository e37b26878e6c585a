"""The parts of a partition that XNNPACK's compiler can see, except the values of its weights.

Two partitions of one structure compile to the same delegate but for the keys of their weights and
the debug handles of their nodes. That holds where a weight is stored as it is. A partition has no
structure if the compiler would look into a weight: to fold batch norms, to quantise, permute or
convert weights, or to compute with constants alone.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

# Where an op may read a weight, by position: it is stored unseen if something variable is read too.
_READERS: Mapping[str, Sequence[int]] = {
    "aten::linear": (1, 2),
    "aten::add.Tensor": (0, 1),
    "aten::sub.Tensor": (0, 1),
    "aten::mul.Tensor": (0, 1),
    "aten::div.Tensor": (0, 1),
}
_CONSTANTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
# Where a node comes from, which XNNPACK's compiler doesn't ask; its handle is exchanged.
_PROVENANCE = {
    *("stack_trace", "nn_module_stack", "from_node", "original_aten", "seq_nr", "desc"),
    *("eager_input_vals", "debug_handle", "torch_fn", "source_fn_stack"),
}
# XNNPACK asks of products alone whether they come from a linear layer.
_PRODUCTS = ("aten::mm", "aten::addmm")
# Weights that are never converted, whatever their values: of these types, and not channels last.
_STORED = (torch.float32, torch.float16, torch.bfloat16)
_FLAT = 3
# The values of constants up to this size in bytes are a part of the structure.
_SMALL = 16


@frozen(eq=False)
class Structure:
    """A partition's structure, and what differs between partitions of that structure.

    Args:
        key: Equal for partitions of one structure.
        weights: The constants, in order.
        handles: The debug handle of each node, in order; None if it has none.
    """

    key: bytes
    weights: Sequence[torch.Tensor]
    handles: Sequence[int | None]

    @functools.cached_property
    def digests(self) -> list[str]:
        """The key under which XNNPACK stores each weight."""
        return [hashlib.sha256(contents(weight)).hexdigest() for weight in self.weights]


def structure_of(program: ExportedProgram, specs: Sequence[Any]) -> Structure | None:
    """Return the structure of a partition's program; None if its weights could be looked into.

    Args:
        program: As XNNPACK's `preprocess` is given it; not changed.
        specs: Its compile specs.
    """
    try:
        return _Reading(program).structure(specs)
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """The compiler may look at this part of the program."""


@define(eq=False)
class _Reading:
    """Describes a program in strings, numbers and tuples, with no name in it."""

    program: ExportedProgram
    position: dict[Node, int] = field(factory=dict)
    variable: set[Node] = field(factory=set)
    large: set[Node] = field(factory=set)
    weights: list[torch.Tensor] = field(factory=list)

    def structure(self, specs: Sequence[Any]) -> Structure:
        signature = self.program.graph_signature
        if any(spec.kind != OutputKind.USER_OUTPUT for spec in signature.output_specs):
            raise _UnknownError
        inputs = {
            spec.arg.name: spec for spec in signature.input_specs if hasattr(spec.arg, "name")
        }
        parts: list[Any] = [[(spec.key, bytes(spec.value)) for spec in specs]]
        for index, node in enumerate(self.program.graph.nodes):
            self.position[node] = index
            if node.op == "placeholder":
                parts.append(self._input(node, inputs.get(node.name)))
            elif node.op in ("call_function", "output"):
                parts.append(self._call(node))
            else:
                raise _UnknownError
            parts.append(self._meta(node))
        handles = [node.meta.get("debug_handle") for node in self.program.graph.nodes]
        key = hashlib.sha256(repr(parts).encode()).digest()
        return Structure(key, self.weights, handles)

    def _input(self, node: Node, spec: Any) -> Any:
        if spec is None:
            raise _UnknownError
        if spec.kind == InputKind.USER_INPUT:
            self.variable.add(node)
            return spec.kind.name
        if spec.kind not in _CONSTANTS:
            raise _UnknownError
        program = self.program
        state = spec.target in program.state_dict
        value = (program.state_dict if state else program.constants)[spec.target]
        self.weights.append(_plain(value))
        if value.nbytes > _SMALL:
            # Others are converted or permuted, which doesn't show in a weight of equal elements.
            if value.dtype not in _STORED or value.dim() > _FLAT:
                raise _UnknownError
            self.large.add(node)
            content = b""
        else:
            content = bytes(contents(value))
        traits = (type(value).__name__, str(value.dtype), tuple(value.shape), value.requires_grad)
        return (spec.kind.name, spec.persistent, state, traits, content)

    def _call(self, node: Node) -> Any:
        if not self.variable.isdisjoint(node.all_input_nodes):
            self.variable.add(node)
        op = "output" if node.op == "output" else _name(node.target)
        if op in _PRODUCTS:
            raise _UnknownError
        read = self.large.intersection(node.all_input_nodes)
        if read and (node not in self.variable or not self._stored_unseen(op, node, read)):
            raise _UnknownError
        return (op, self._value(node.args), self._value(dict(node.kwargs)))

    def _stored_unseen(self, op: str, node: Node, read: set[Node]) -> bool:
        seen = {arg for i, arg in enumerate(node.args) if i not in _READERS.get(op, ())}
        return op in _READERS and not node.kwargs and read.isdisjoint(seen)

    def _meta(self, node: Node) -> Any:
        keys = sorted(node.meta.keys() - _PROVENANCE)
        return [(key, self._value(node.meta[key])) for key in keys]

    def _value(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str, bytes):
            return value
        if type(value) is float:
            # There is more than one NaN, and they have one text.
            return ("float", struct.pack(">d", value))
        if isinstance(value, Node):
            return ("node", self.position[value])
        if isinstance(value, (list, tuple)):
            return (isinstance(value, tuple), tuple([self._value(item) for item in value]))
        if isinstance(value, dict):
            return {self._value(key): self._value(item) for key, item in value.items()}
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return str(value)
        if type(value) is FakeTensor:
            return self._tensor(value)
        raise _UnknownError

    def _tensor(self, value: FakeTensor) -> Any:
        constant = value.constant
        if constant is not None and constant.nbytes > _SMALL:
            raise _UnknownError
        return (
            *(str(value.dtype), str(value.device), str(value.layout), value.requires_grad),
            *(self._value(tuple(value.shape)), self._value(value.stride())),
            self._value(value.storage_offset()),
            None if constant is None else bytes(contents(_plain(constant))),
        )


def contents(value: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor that `structure_of` lets through, where they are."""
    flat = value.detach().reshape(-1).view(torch.uint8)
    return flat.numpy().data


def _plain(value: Any) -> torch.Tensor:
    """Return a tensor whose memory is just its elements in order, as XNNPACK stores it."""
    kinds = (torch.Tensor, torch.nn.Parameter)
    if not isinstance(value, torch.Tensor) or type(value) not in kinds:
        raise _UnknownError
    plain = value.layout is torch.strided and value.is_cpu and value.is_contiguous()
    if not plain or not value.nbytes or value.untyped_storage().nbytes() != value.nbytes:
        raise _UnknownError
    if value.is_quantized or value.is_conj() or value.is_neg():
        raise _UnknownError
    return value


def _name(target: Any) -> str:
    if isinstance(target, (EdgeOpOverload, OpOverload)):
        return str(target.name())
    if target is operator.getitem:
        return "getitem"
    raise _UnknownError
