"""The canonical form: a partition's program as text, which says all that its bytes depend on.

Nodes are numbered, so that their names don't count; symbolic sizes are numbered as they appear.
Weights are there by the digest of their bytes. Where a value has no faithful text, there is none
for the program: two programs with one text would share compiled bytes.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import sympy
import torch
from attrs import define, field
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument
from torch.fx import GraphModule, Node

from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.errors import Unhashable

# Where an op comes from, for people: backends that compile by it would compile line numbers.
_PROVENANCE = frozenset(
    {
        "desc",
        "eager_input_vals",
        "from_node",
        "original_aten",
        "seq_nr",
        "source_fn_stack",
        "stack_trace",
        "tensor_meta",
        "torch_fn",
        "unbacked_bindings",
    }
)
_PLAIN = frozenset({bool, int, str, bytes, type(None)})
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@define
class Canonical:
    """Writes one program.

    Args:
        program: A partition's program.
        digests: Of the bytes of weights.
    """

    program: ExportedProgram
    digests: Digests
    _symbols: dict[sympy.Symbol, sympy.Symbol] = field(factory=dict, init=False)
    _stacks: dict[int, str] = field(factory=dict, init=False)

    def lines(self) -> Iterator[str]:
        """The lines of the text.

        Raises:
            Unhashable: Something has no faithful text.
        """
        yield from self._inputs()
        yield from self._graph(self.program.graph_module, "")
        yield from self._outputs()
        yield from self._ranges()

    def _inputs(self) -> Iterator[str]:
        program = self.program
        for spec in program.graph_signature.input_specs:
            argument = spec.arg
            fixed = f" {argument.value!r}" if isinstance(argument, ConstantArgument) else ""
            kind = f"{spec.kind.name} {type(argument).__name__}{fixed}"
            yield f"input {kind} {spec.target!r} {spec.persistent!r}"
            if spec.target is not None:
                name = spec.target
                value = program.state_dict.get(name, program.constants.get(name))
                yield f"  {self.digests.of(name, value)}"

    def _outputs(self) -> Iterator[str]:
        for spec in self.program.graph_signature.output_specs:
            yield f"output {spec.kind.name} {spec.target!r}"

    def _ranges(self) -> Iterator[str]:
        ranges = self.program.range_constraints
        for symbol, name in self._symbols.items():
            yield f"range {name} {sorted(symbol.assumptions0.items())} {ranges.get(symbol)}"

    def _graph(self, module: GraphModule, indent: str) -> Iterator[str]:
        numbers: dict[Node, int] = {}
        for number, node in enumerate(module.graph.nodes):
            numbers[node] = number
            # A placeholder's target is its name, which doesn't count.
            target = "" if node.op in ("placeholder", "output") else self._target(node)
            arguments = self._text(node.args, numbers), self._text(node.kwargs, numbers)
            yield f"{indent}{number} {node.op} {target} {' '.join(arguments)}"
            for key in sorted(node.meta.keys() - _PROVENANCE):
                yield f"{indent}  {key} {self._meta(node, key)}"
            if node.op == "get_attr":
                yield from self._attribute(module, node, indent + "  ")

    def _attribute(self, module: GraphModule, node: Node, indent: str) -> Iterator[str]:
        value = getattr(module, str(node.target), None)
        if isinstance(value, GraphModule):
            yield from self._graph(value, indent)
        else:
            yield indent + self.digests.of(str(node.target), value)

    def _target(self, node: Node) -> str:
        target = node.target
        if node.op == "get_attr":
            return ""
        if isinstance(target, (OpOverload, OpOverloadPacket, HigherOrderOperator)):
            return f"{type(target).__name__} {target}"
        # ExecuTorch wraps ATen's overloads.
        if hasattr(target, "_op") and isinstance(target._op, OpOverload):
            return f"{type(target).__name__} {target._op}"
        module, name = getattr(target, "__module__", ""), getattr(target, "__qualname__", "")
        if not callable(target) or not module or "<" in name or module == "__main__":
            raise Unhashable(f"{node.name} calls {target!r}, which has no name of its own")
        return f"{module}.{name}"

    def _meta(self, node: Node, key: str) -> str:
        value = node.meta[key]
        if key == "nn_module_stack":
            # Nodes share them.
            if id(value) not in self._stacks:
                self._stacks[id(value)] = str(list(value.values()))
            return self._stacks[id(value)]
        try:
            return self._text(value, {})
        except Unhashable as error:
            raise Unhashable(f"{node.name} has meta[{key!r}]: {error}") from None

    def _text(self, value: Any, numbers: Mapping[Node, int]) -> str:
        """A text that only equal values have."""
        # Most values by far are of these types, and no others pass for them.
        kind = type(value)
        if kind in _PLAIN:
            return repr(value)
        if kind is Node:
            return f"%{numbers[value]}"
        if kind is FakeTensor:
            return self._tensor(value)
        if isinstance(value, (tuple, list, set, frozenset, Mapping)):
            return self._collection(value, numbers)
        if isinstance(value, _SYMBOLIC):
            return self._symbolic(value)
        if isinstance(value, float):
            return value.hex()
        if isinstance(value, complex):
            return f"({value.real.hex()}, {value.imag.hex()})"
        if isinstance(value, enum.Enum):
            return repr(value)
        if isinstance(value, _TORCH):
            return str(value)
        if fields := _fields(value):
            return f"{type(value).__module__}.{type(value).__qualname__} " + self._text(fields, {})
        raise Unhashable(f"a value of {type(value).__name__}, which has no faithful text")

    def _collection(self, value: Any, numbers: Mapping[Node, int]) -> str:
        kind = "tuple" if isinstance(value, tuple) else "list" if isinstance(value, list) else ""
        if kind:
            return f"{kind}({', '.join([self._text(item, numbers) for item in value])})"
        if isinstance(value, (set, frozenset)):
            return f"set({', '.join(sorted(self._text(item, numbers) for item in value))})"
        pairs = (f"{self._text(key, numbers)}: {self._text(value[key], numbers)}" for key in value)
        return f"dict({', '.join(sorted(pairs))})"

    def _tensor(self, tensor: FakeTensor) -> str:
        geometry = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        return f"{tensor.dtype} {tensor.device} {tensor.layout} {self._text(geometry, {})}"

    def _symbolic(self, value: Any) -> str:
        expression = value.node.expr
        for symbol in sorted(expression.free_symbols, key=str):
            number = len(self._symbols)
            self._symbols.setdefault(symbol, sympy.Symbol(f"d{number}", **symbol.assumptions0))
        # Compilers tune for the size of the example.
        hint = value.node.hint if value.node.has_hint() else None
        return f"{expression.xreplace(self._symbols)} like {hint}"


def _fields(value: object) -> dict[str, Any]:
    """The fields of an attrs value or a dataclass; empty for anything else."""
    if attrs.has(kind := type(value)):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {}
