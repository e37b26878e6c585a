"""The canonical form: a partition's program as text, which says all that its bytes depend on.

Nodes are numbered, so that their names don't count; symbolic sizes are numbered as they appear.
Weights are there by the digest of their bytes. Where a value has no faithful text, there is none
for the program: two programs with one text would share compiled bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
import torch
from attrs import define, field
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument
from torch.fx import GraphModule, Node

from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.faithful import Unhashable, faithful
from etdev.upstream.fake_tensors import FakeTensor
from etdev.upstream.operators import HigherOrderOperator, OpOverloadPacket, overload_of

# Where an op comes from, for people: backends that compile by it would compile line numbers.
PROVENANCE = frozenset(
    {
        "desc",
        "eager_input_vals",
        "from_node",
        "original_aten",
        "seq_nr",
        "stack_trace",
        "tensor_meta",
        "unbacked_bindings",
    }
)
# The call that an op was written in. Some backends look for the nodes of one call.
_CALLS = ("source_fn_stack", "torch_fn")
# Of others the code may be elsewhere, such as that of a Triton kernel behind its number.
_FLOWS = frozenset(
    {
        *("cond", "map_impl", "scan", "associative_scan", "while_loop"),
        *("wrap_with_autocast", "wrap_with_set_grad_enabled"),
    }
)
# What is in the key by its version.
_MODULES = frozenset({"_operator", "operator", "math", "builtins", "torch", "executorch"})
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
    _calls: dict[str, int] = field(factory=dict, init=False)

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
            for key in sorted(node.meta.keys() - PROVENANCE):
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
        if op := _op(target):
            return op
        module, name = getattr(target, "__module__", ""), getattr(target, "__qualname__", "")
        if not callable(target) or module.partition(".")[0] not in _MODULES or "<" in name:
            raise Unhashable(f"{node.name} calls {target!r}, of whose code the version isn't known")
        return f"{module}.{name}"

    def _meta(self, node: Node, key: str) -> str:
        value = node.meta[key]
        if key == "nn_module_stack":
            # Nodes share them.
            if id(value) not in self._stacks:
                self._stacks[id(value)] = str(list(value.values()))
            return self._stacks[id(value)]
        try:
            return self._text(self._called(value) if key in _CALLS else value, {})
        except Unhashable as error:
            raise Unhashable(f"{node.name} has meta[{key!r}]: {error}") from None

    def _called(self, value: Any) -> Any:
        """Calls with a number for each name: the layers of a model have names of their own."""
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
                return self._tensor(value, special)
            if kind in _SYMBOLIC:
                return self._symbolic(value)
            return _op(value) or None

        return faithful(value, special)

    def _tensor(self, tensor: FakeTensor, special: Callable[[Any], str | None]) -> str:
        if tensor.layout != torch.strided:
            raise Unhashable(f"a {tensor.layout} tensor, of which not all is known")
        geometry = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        bits = tensor.requires_grad, tensor.is_conj(), tensor.is_neg()
        return f"{tensor.dtype} {tensor.device} {faithful(geometry, special)} {bits}"

    def _symbolic(self, value: Any) -> str:
        expression = value.node.expr
        for symbol in sorted(expression.free_symbols, key=str):
            number = len(self._symbols)
            self._symbols.setdefault(symbol, sympy.Symbol(f"d{number}", **symbol.assumptions0))
        # Compilers tune for the size of the example.
        hint = value.node.hint if value.node.has_hint() else None
        return f"{expression.xreplace(self._symbols)} like {hint}"


def _op(value: Any) -> str:
    """What an op is; empty for anything else."""
    if isinstance(value, HigherOrderOperator):
        if str(value) not in _FLOWS:
            raise Unhashable(f"{value} may stand for code that is elsewhere")
        return f"{type(value).__name__} {value}"
    if isinstance(value, OpOverloadPacket):
        return f"{type(value).__name__} {value}"
    # ExecuTorch wraps ATen's overloads.
    if own := overload_of(value):
        return f"{type(value).__name__} {own}"
    return ""
