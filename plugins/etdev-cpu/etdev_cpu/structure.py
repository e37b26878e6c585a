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
from collections.abc import Iterable, Mapping, Sequence
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
    **dict.fromkeys([f"aten::{op}.Tensor" for op in ("add", "sub", "mul", "div")], (0, 1)),
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
# What XNNPACK writes for a node without a handle, as for one that its own passes add.
ABSENT = 65535
# A payload leaves out a handle of 0.
_NO_HANDLES = (None, 0, ABSENT)
_PLAIN = (type(None), bool, int, float, str, bytes)
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)


@frozen(eq=False)
class Structure:
    """A partition's structure, and what differs between partitions of that structure.

    Args:
        parts: Everything that the compiler can see, as plain values.
        weights: The constants, in order.
        handles: The debug handle of each node, in order; None if it has none.
    """

    parts: Sequence[Any]
    weights: Sequence[torch.Tensor]
    handles: Sequence[int | None]

    @functools.cached_property
    def digests(self) -> list[str]:
        """The key under which XNNPACK stores each weight."""
        return [hashlib.sha256(contents(weight)).hexdigest() for weight in self.weights]

    @functools.cached_property
    def key(self) -> bytes:
        """Equal for partitions that compile to the same delegate, but for digests and handles."""
        described = (self.parts, _equal(self.digests), _equal(self.handles))
        return hashlib.sha256(repr(described).encode()).digest()


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
        signature, nodes = self.program.graph_signature, self.program.graph.nodes
        _require(all(spec.kind == OutputKind.USER_OUTPUT for spec in signature.output_specs))
        inputs = {getattr(spec.arg, "name", None): spec for spec in signature.input_specs}
        parts: list[Any] = [[(spec.key, bytes(spec.value)) for spec in specs]]
        parts.append(str(self.program.range_constraints))
        for index, node in enumerate(nodes):
            self.position[node] = index
            is_input = node.op == "placeholder" and node.name in inputs
            parts.append(self._input(node, inputs[node.name]) if is_input else self._call(node))
            keys = sorted(node.meta.keys() - _PROVENANCE)
            parts.append([(key, self._value(node.meta[key])) for key in keys])
        return Structure(parts, self.weights, [node.meta.get("debug_handle") for node in nodes])

    def _input(self, node: Node, spec: Any) -> Any:
        if spec.kind == InputKind.USER_INPUT:
            self.variable.add(node)
            return spec.kind.name
        _require(spec.kind in _CONSTANTS)
        state = spec.target in self.program.state_dict
        value = (self.program.state_dict if state else self.program.constants)[spec.target]
        _require(_is_plain(value))
        self.weights.append(value)
        content = b""
        if value.nbytes > _SMALL:
            # Others are converted or permuted, which doesn't show in a weight of equal elements.
            _require(value.dtype in _STORED and value.dim() <= _FLAT)
            self.large.add(node)
        else:
            content = bytes(contents(value))
        traits = (type(value).__name__, str(value.dtype), tuple(value.shape), value.requires_grad)
        return (spec.kind.name, spec.persistent, state, traits, content)

    def _call(self, node: Node) -> Any:
        op = "output" if node.op == "output" else _name(node.target)
        _require(op not in _PRODUCTS and node.op in ("call_function", "output"))
        if op not in ("output", "getitem"):
            _require(node.meta.get("debug_handle") not in _NO_HANDLES)
        sources = set(node.all_input_nodes)
        if not self.variable.isdisjoint(sources):
            self.variable.add(node)
        if read := self.large & sources:
            seen = {arg for i, arg in enumerate(node.args) if i not in _READERS.get(op, ())}
            unseen = op in _READERS and not node.kwargs and read.isdisjoint(seen)
            _require(unseen and node in self.variable)
        return (op, self._value(node.args), self._value(dict(node.kwargs)))

    def _value(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Node):
            return ("node", self.position[value])
        if isinstance(value, (list, tuple)):
            return (isinstance(value, tuple), tuple([self._value(item) for item in value]))
        if isinstance(value, dict):
            return {self._value(key): self._value(item) for key, item in value.items()}
        if isinstance(value, _TORCH):
            return str(value)
        if isinstance(value, torch.SymInt):
            return (str(value.node.expr), value.node.hint if value.node.has_hint() else None)
        _require(type(value) is FakeTensor)
        return self._tensor(value)

    def _tensor(self, value: FakeTensor) -> Any:
        constant = value.constant
        _require(constant is None or (constant.nbytes <= _SMALL and _is_plain(constant)))
        content = None if constant is None else bytes(contents(constant))
        kind = (value.dtype, value.device, value.layout, value.requires_grad)
        places = (tuple(value.shape), value.stride(), value.storage_offset())
        return (*map(self._value, (*kind, *places)), content)


def contents(value: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor that `structure_of` lets through, where they are."""
    return value.detach().reshape(-1).view(torch.uint8).numpy().data


def _require(known: bool) -> None:
    if not known:
        raise _UnknownError


def _equal(values: Iterable[Any]) -> list[int]:
    """Return for each value the position of the first one that is equal."""
    first: dict[Any, int] = {}
    return [first.setdefault(value, index) for index, value in enumerate(values)]


def _is_plain(value: Any) -> bool:
    """Return True if the memory of a tensor is just its elements in order, as XNNPACK stores it."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.layout is torch.strided
        and value.is_cpu
        and value.is_contiguous()
        and 0 < value.nbytes == value.untyped_storage().nbytes()
        and not (value.is_quantized or value.is_conj() or value.is_neg())
    )


def _name(target: Any) -> str:
    if target is operator.getitem:
        return "getitem"
    _require(isinstance(target, (EdgeOpOverload, OpOverload)))
    return str(target.name())
