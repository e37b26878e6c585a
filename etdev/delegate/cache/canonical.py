"""The canonical form of values and programs: a text that only equal ones have.

In a program nodes are numbered, so that their names don't count; symbolic sizes are numbered as
they appear. Weights are in it by a digest of their bytes. A program with a value that has no such
text has none either: two programs with one text would share compiled bytes.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import sympy
import torch
from attrs import define, field
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument
from torch.fx import GraphModule, Node
from torch.fx.immutable_collections import immutable_dict, immutable_list

from etdev.upstream.fake_tensors import FakeTensor
from etdev.upstream.operators import HigherOrderOperator, OpOverloadPacket, overload_of

# Metadata about the source of an op, which is for people, and which no compiler reads.
PROVENANCE = frozenset(
    {
        *("desc", "eager_input_vals", "from_node", "original_aten", "seq_nr", "stack_trace"),
        *("tensor_meta", "unbacked_bindings"),
    }
)
# The call that an op was written in; some backends match all nodes of one call.
_CALLS = ("source_fn_stack", "torch_fn")
# Higher-order ops whose code is in the graph; others refer to it by a number, as Triton's do.
_FLOWS = frozenset(
    {
        *("cond", "map_impl", "scan", "associative_scan", "while_loop"),
        *("wrap_with_autocast", "wrap_with_set_grad_enabled"),
    }
)
# Packages whose functions a node may call: the versions of these are in the key.
_MODULES = frozenset({"_operator", "operator", "math", "builtins", "torch", "executorch"})
_PLAIN = frozenset({bool, int, str, bytes, type(None)})
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
# torch.fx makes the arguments of a node immutable, and backends can't see the difference.
_SEQUENCES: dict[type, str] = {
    **{tuple: "tuple", list: "list", immutable_list: "list"},
    torch.Size: "Size",
}
_DICTS: dict[type, str] = {
    **{dict: "dict", immutable_dict: "dict"},
    **{OrderedDict: "OrderedDict", defaultdict: "defaultdict"},
}


class Uncacheable(Exception):
    """A value that the compiled bytes may depend on has no canonical text; the message names it."""


def canonical(value: Any, special: Callable[[Any], str | None] | None = None) -> str:
    """Return a text that only equal values have, whatever process they are in.

    `special` is asked first about all but plain numbers and texts, and returns None for the rest.

    Raises:
        Uncacheable: The value, or a value in it, has no such text.
    """
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if special and (known := special(value)) is not None:
        return known
    if kind in _SEQUENCES:
        return f"{_SEQUENCES[kind]}({', '.join([canonical(item, special) for item in value])})"
    if kind in _DICTS:
        # In its own order, in which a backend may iterate over it.
        pairs = [f"{canonical(k, special)}: {canonical(v, special)}" for k, v in value.items()]
        return f"{_DICTS[kind]}({', '.join(pairs)})"
    if kind in (set, frozenset):
        return f"set({', '.join(sorted(canonical(item, special) for item in value))})"
    if kind is float:
        # By its bits, since there is more than one NaN.
        return f"float {struct.pack('>d', value).hex()}"
    if kind is complex:
        return f"complex {struct.pack('>dd', value.real, value.imag).hex()}"
    if isinstance(value, _TORCH):
        return str(value)
    return f"{kind.__module__}.{kind.__qualname__} {canonical(_content(value), special)}"


def _content(value: Any) -> Any:
    """Return the values that an enum member or a record consists of."""
    if isinstance(value, enum.Enum):
        return value.name, value.value
    own = getattr(value, "__dict__", {})
    if isinstance(value, tuple) and hasattr(value, "_fields") and not own:
        return tuple(value)
    kind = type(value)
    if attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        raise Uncacheable(f"a value of {kind.__name__}, which has no canonical text")
    return {name: getattr(value, name) for name in names} | own


@define
class CanonicalProgram:
    """The canonical form of a partition's program; `digest` gives that of a weight."""

    program: ExportedProgram
    digest: Callable[[str, object], str]
    _symbols: dict[sympy.Symbol, sympy.Symbol] = field(factory=dict, init=False)
    _stacks: dict[int, str] = field(factory=dict, init=False)
    _calls: dict[str, int] = field(factory=dict, init=False)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text, or raise Uncacheable if a value in the program has none."""
        program, signature = self.program, self.program.graph_signature
        for spec in signature.input_specs:
            argument = spec.arg
            fixed = f" {argument.value!r}" if isinstance(argument, ConstantArgument) else ""
            kind = f"{spec.kind.name} {type(argument).__name__}{fixed}"
            yield f"input {kind} {spec.target!r} {spec.persistent!r}"
            if spec.target is not None:
                value = program.state_dict.get(spec.target, program.constants.get(spec.target))
                yield f"  {self.digest(spec.target, value)}"
        yield from self._graph(program.graph_module, "")
        for output in signature.output_specs:
            yield f"output {output.kind.name} {output.target!r}"
        for symbol, name in self._symbols.items():
            assumptions = sorted(symbol.assumptions0.items())
            yield f"range {name} {assumptions} {program.range_constraints.get(symbol)}"

    def _graph(self, module: GraphModule, indent: str) -> Iterator[str]:
        numbers: dict[Node, int] = {}
        for number, node in enumerate(module.graph.nodes):
            numbers[node] = number
            arguments = self._text(node.args, numbers), self._text(node.kwargs, numbers)
            yield f"{indent}{number} {node.op} {_target(node)} {' '.join(arguments)}"
            for key in sorted(node.meta.keys() - PROVENANCE):
                yield f"{indent}  {key} {self._meta(node, key)}"
            if node.op == "get_attr":
                value = getattr(module, str(node.target), None)
                if isinstance(value, GraphModule):
                    yield from self._graph(value, indent + "  ")
                else:
                    yield f"{indent}  {self.digest(str(node.target), value)}"

    def _meta(self, node: Node, key: str) -> str:
        value = node.meta[key]
        if key == "nn_module_stack":
            # The nodes of one module share this dict.
            if id(value) not in self._stacks:
                self._stacks[id(value)] = str(list(value.values()))
            return self._stacks[id(value)]
        try:
            return self._text(self._called(value) if key in _CALLS else value, {})
        except Uncacheable as error:
            raise Uncacheable(f"{node.name} has meta[{key!r}]: {error}") from None

    def _called(self, value: Any) -> Any:
        """Replace names of calls by numbers, since each layer of a model has names of its own."""
        if isinstance(value, list):
            return [self._called(each) for each in value]
        if not isinstance(value, tuple) or len(value) != 2:
            return value
        name, called = value
        number = self._calls.setdefault(str(name), len(self._calls))
        if isinstance(called, str):
            return number, called
        return number, getattr(called, "__module__", ""), getattr(called, "__qualname__", "")

    def _text(self, value: Any, numbers: Mapping[Node, int]) -> str:
        def special(value: Any) -> str | None:
            kind = type(value)
            if kind is Node:
                return f"%{numbers[value]}"
            if kind is FakeTensor:
                return _tensor(value, special)
            if kind in _SYMBOLIC:
                return self._symbolic(value)
            return _op(value) or None

        return canonical(value, special)

    def _symbolic(self, value: Any) -> str:
        expression = value.node.expr
        for symbol in sorted(expression.free_symbols, key=str):
            number = len(self._symbols)
            self._symbols.setdefault(symbol, sympy.Symbol(f"d{number}", **symbol.assumptions0))
        # Compilers tune for the size of the example.
        hint = value.node.hint if value.node.has_hint() else None
        return f"{expression.xreplace(self._symbols)} like {hint}"


def _target(node: Node) -> str:
    """Return the name of the function that a node calls; empty if its target is only a name."""
    target = node.target
    if node.op in ("placeholder", "output", "get_attr"):
        return ""
    if op := _op(target):
        return op
    module, name = getattr(target, "__module__", ""), getattr(target, "__qualname__", "")
    if not callable(target) or module.partition(".")[0] not in _MODULES or "<" in name:
        raise Uncacheable(f"{node.name} calls {target!r}, and the version of its code is unknown")
    return f"{module}.{name}"


def _tensor(tensor: FakeTensor, special: Callable[[Any], str | None]) -> str:
    if tensor.layout != torch.strided:
        raise Uncacheable(f"a {tensor.layout} tensor, which is not fully described")
    geometry = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    bits = tensor.requires_grad, tensor.is_conj(), tensor.is_neg()
    return f"{tensor.dtype} {tensor.device} {canonical(geometry, special)} {bits}"


def _op(value: Any) -> str:
    """Return kind and name of an op; an empty text for any other value."""
    if isinstance(value, HigherOrderOperator):
        if str(value) not in _FLOWS:
            raise Uncacheable(f"{value} may stand for code that is elsewhere")
        return f"{type(value).__name__} {value}"
    if isinstance(value, OpOverloadPacket):
        return f"{type(value).__name__} {value}"
    # ExecuTorch wraps ATen's overloads.
    if own := overload_of(value):
        return f"{type(value).__name__} {own}"
    return ""
