"""Cases: parts of an exported program that run alone, written as plain torch."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from attrs import define, evolve, field, frozen
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from etdev import EtdevError
from etdev_reduce.failure import first_line
from etdev_reduce.values import CAPTURED, Value, literal

_VIEWS = (
    *("view", "reshape", "permute", "transpose", "unsqueeze", "squeeze", "expand", "slice"),
    *("alias", "detach", "clone", "to", "_to_copy", "getitem", "sym_size", "select", "t"),
    *("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel"),
    *("dequantize_per_channel", "contiguous", "lift_fresh_copy", "flatten"),
)


# Not slotted, for its cached members.
@define(eq=False, slots=False)
class Recording:
    """An exported program and the values of its nodes in some calls.

    Args:
        program: The program.
        calls: The values by name of the node, for each call; the first is what it is exported with.
        constants: Names of the nodes that are computed from weights alone.
    """

    program: ExportedProgram
    calls: Sequence[Mapping[str, Any]]
    constants: frozenset[str] = field(init=False)

    @classmethod
    def of(cls, program: ExportedProgram, calls: Iterable[Sequence[Any]]) -> Recording:
        """Call a program in eager PyTorch with flat inputs, each time in its first state.

        Raises:
            EtdevError: Eager PyTorch can't run it.
        """
        specs = program.graph_signature.input_specs
        held = {**program.constants, **program.state_dict}
        recorded = []
        for inputs in calls:
            given = iter(inputs)
            arguments = [held[s.target] if s.target in held else next(given) for s in specs]
            arguments = pytree.tree_map_only(torch.Tensor, torch.clone, arguments)
            recorder = _Recorder(program.graph_module, garbage_collect_values=False)
            try:
                with torch.no_grad():
                    recorder.run(*arguments)
            except Exception as error:
                what = f"can't be run in eager PyTorch: {first_line(error)}"
                raise EtdevError("the model", what, "give inputs that it takes") from error
            recorded.append(recorder.seen)
        return cls(program, recorded)

    def __attrs_post_init__(self) -> None:
        signature = self.program.graph_signature
        held = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
        held |= {*signature.inputs_to_lifted_tensor_constants}
        for node in self.program.graph.nodes:
            inputs = node.all_input_nodes
            if node.op == "call_function" and inputs and all(n.name in held for n in inputs):
                held.add(node.name)
        self.constants = frozenset(held)

    def values(self) -> dict[str, Any]:
        """Return all tensors by the keys under which sources read them."""
        return {
            self.key(name, number): value
            for number, call in enumerate(self.calls)
            for name, value in call.items()
            if isinstance(value, torch.Tensor)
        }

    def key(self, name: str, call: int) -> str:
        """Return the key of the value of a node in a call."""
        return name if name in self.constants else f"{name}.{call}"

    @cached_property
    def is_dynamic(self) -> bool:
        """True if a size varies."""
        return bool(self.program.range_constraints)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that compute something."""
        return tuple(node for node in self.program.graph.nodes if node.op == "call_function")

    @cached_property
    def groups(self) -> list[tuple[Node, ...]]:
        """The nodes in groups that are cut at first as one.

        An op is in one group with its dequantised inputs, its quantised output and the items of its
        result, so that patterns which a backend takes as a whole stay whole.
        """
        order = {node: number for number, node in enumerate(self.nodes)}
        group: dict[Node, list[Node]] = {}
        for node in self.nodes:
            inputs = [n for n in node.all_input_nodes if n.op == "call_function"]
            name = _short(node)
            if inputs and (name == "getitem" or name.startswith("quantize_per")):
                group[node] = group[inputs[0]]
            else:
                group[node] = []
            group[node].append(node)
            for own in inputs:
                is_private = _short(own).startswith("dequantize_per") and len(own.users) == 1
                if is_private and group[own] is not group[node]:
                    group[node][:0] = group[own]
                    group.update(dict.fromkeys(group[own], group[node]))
        kept = {id(members): tuple(members) for members in group.values()}
        return sorted(kept.values(), key=lambda members: order[members[0]])


class _Recorder(Interpreter):
    """An interpreter that keeps a copy of each value, which a later op may write to."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.seen: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        """Run a node, and copy its result, in an order that the runtime takes as an input."""
        value = super().run_node(n)
        copied = _copied if n.op == "placeholder" else _ordered
        if n.op != "output":
            self.seen[n.name] = pytree.tree_map_only(torch.Tensor, copied, value)
        return value


def _copied(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone(memory_format=torch.preserve_format)


def _ordered(value: torch.Tensor) -> torch.Tensor:
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        return _copied(value)
    return _copied(value).contiguous()


@frozen(eq=False)
class Case:
    """Some nodes of a recorded program, which read captured or made values.

    Args:
        recording: The program.
        nodes: The nodes, in their order.
        fills: How the values that they read are made, by name; others are captured.
        sizes: New sizes by old ones.
        dtypes: New dtypes by old ones.
        aliases: Nodes that are left out, and the nodes that stand for them.
        calls: Numbers of the calls; the first is what the case is exported with.
        dynamic: Sizes that vary in the program do so in the case.
    """

    recording: Recording
    nodes: tuple[Node, ...]
    fills: Mapping[str, str] = field(factory=dict)
    sizes: Mapping[int, int] = field(factory=dict)
    dtypes: Mapping[Any, Any] = field(factory=dict)
    aliases: Mapping[Node, Node] = field(factory=dict)
    calls: tuple[int, ...] = (0,)
    dynamic: bool = False

    @property
    def computing(self) -> list[Node]:
        """The nodes that compute, without views, casts and quantisers."""
        return [node for node in self.nodes if _short(node) not in _VIEWS]

    @property
    def reads(self) -> list[Node]:
        """The nodes that the case doesn't compute and reads, in order of use."""
        own = {*self.nodes}
        found = (self._known(n) for node in self.nodes for n in node.all_input_nodes)
        # Branches of control flow are written where they are called.
        return list(dict.fromkeys(n for n in found if n not in own and n.op != "get_attr"))

    @property
    def outputs(self) -> list[Node]:
        """The nodes whose values nothing in the case reads, and those that the program returns."""
        read = {self._known(n) for node in self.nodes for n in node.all_input_nodes}
        returned = {*self.recording.program.graph_signature.user_outputs}
        first = self.recording.calls[self.calls[0]]
        ends = (node for node in self.nodes if node not in read or node.name in returned)
        return [node for node in ends if _is_tensors(first.get(node.name))]

    def value(self, node: Node, call: int) -> Value:
        """Return how the value of a node is made in a call."""
        captured = self.recording.calls[call][node.name]
        is_tensor = isinstance(captured, torch.Tensor)
        return Value(captured, self.fills.get(node.name, CAPTURED) if is_tensor else CAPTURED)

    @property
    def tensors(self) -> list[Node]:
        """The tensors that it reads."""
        return [
            n for n in self.reads if isinstance(self.value(n, self.calls[0]).captured, torch.Tensor)
        ]

    @property
    def captured(self) -> list[str]:
        """Names of the tensors that it reads as they were in the user's model."""
        return [node.name for node in self.tensors if not self.fills.get(node.name)]

    def without(self, node: Node, instead: Node) -> Case:
        """Return the case with another node's value in place of a node's."""
        nodes = tuple(other for other in self.nodes if other is not node)
        return evolve(self, nodes=nodes, aliases={**self.aliases, node: instead})

    def _known(self, node: Node) -> Node:
        while node in self.aliases:
            node = self.aliases[node]
        return node

    def source(self) -> str:
        """Return the case as Python: `Model`, `model`, `calls` and `dynamic_shapes`."""
        weights = [n for n in self.tensors if n.name in self.recording.constants]
        inputs = [n for n in self.tensors if n not in weights]
        names = {node: _identifier(node.name) for node in (*self.nodes, *self.reads)}
        arguments = {n: f"self.{names[n]}" if n in weights else names[n] for n in names}
        constants = {
            n: self.value(n, self.calls[0]).source("", {}, {})
            for n in self.reads
            if n not in self.tensors
        }
        written = _Writer({**arguments, **constants}, self)
        body = [line for node in self.nodes for line in written.lines(node)]
        body.append(f"return ({''.join(f'{arguments[n]}, ' for n in self.outputs)})")
        made = [
            f"self.register_buffer({names[n]!r}, {self._made(n, self.calls[0])})" for n in weights
        ]
        head = "class Model(torch.nn.Module):\n"
        if made:
            lines = "\n".join(f"        {line}" for line in made)
            head += f"    def __init__(self):\n        super().__init__()\n{lines}\n\n"
        taken = ", ".join(["self", *(names[n] for n in inputs)])
        lines = "\n".join(f"        {line}" for line in body)
        calls = [f"({''.join(f'{self._made(n, call)}, ' for n in inputs)})" for call in self.calls]
        given = f"calls = [{', '.join(calls)}]"
        shapes = self._dynamic_shapes(inputs) if self.dynamic else "None"
        return (
            f"{head}    def forward({taken}):\n{lines}\n\n\n"
            f"torch.manual_seed(0)\nmodel = Model().eval()\n{given}\ndynamic_shapes = {shapes}\n"
        )

    def _made(self, node: Node, call: int) -> str:
        key = self.recording.key(node.name, call)
        return self.value(node, call).source(key, self.sizes, self.dtypes)

    def kept(self) -> dict[str, Any]:
        """Return the captured values that the source reads, by key."""
        return {
            self.recording.key(node.name, call): self.value(node, call).captured
            for node in self.tensors
            for call in self.calls
            if not self.fills.get(node.name)
        }

    def _dynamic_shapes(self, inputs: Sequence[Node]) -> str:
        ranges = self.recording.program.range_constraints
        shapes = []
        for node in inputs:
            dims = {}
            for dim, size in enumerate(node.meta["val"].shape):
                if isinstance(size, torch.SymInt):
                    known = ranges.get(size.node.expr)
                    bounds = (int(known.lower), int(known.upper)) if known else ()
                    text = (
                        f"(min={bounds[0]}, max={bounds[1]})"
                        if bounds and bounds[1] < 2**31
                        else ""
                    )
                    dims[dim] = f"torch.export.Dim.DYNAMIC{text}"
            shapes.append(f"{{{', '.join(f'{dim}: {text}' for dim, text in dims.items())}}}")
        return f"({''.join(f'{shape}, ' for shape in shapes)})"


@frozen(eq=False)
class _Writer:
    """Writes nodes as statements.

    Args:
        names: The source of each node's value.
        case: The case, for its sizes and dtypes.
    """

    names: dict[Node, str]
    case: Case

    def lines(self, node: Node) -> Iterator[str]:
        """Yield the statements of a node, those of its branches first."""
        for branch in (n for n in node.all_input_nodes if n.op == "get_attr"):
            module = getattr(branch.graph.owning_module, str(branch.target))
            self.names[branch] = _identifier(f"{node.name}_{branch.target}")
            yield from self._branch(self.names[branch], module)
        kwargs = [f"{key}={self._argument(value)}" for key, value in node.kwargs.items()]
        arguments = [self._argument(value) for value in node.args]
        if _short(node) == "getitem":
            call = f"{arguments[0]}[{arguments[1]}]"
        else:
            call = f"{_callable(node.target)}({', '.join([*arguments, *kwargs])})"
        name = self.names.setdefault(node, _identifier(node.name))
        yield f"{name} = {call}"

    def _branch(self, name: str, module: GraphModule) -> Iterator[str]:
        nodes = list(module.graph.nodes)
        taken = [node for node in nodes if node.op == "placeholder"]
        for node in taken:
            self.names[node] = _identifier(f"{name}_{node.name}")
        yield f"def {name}({', '.join(self.names[node] for node in taken)}):"
        for node in nodes:
            if node.op == "call_function":
                self.names[node] = _identifier(f"{name}_{node.name}")
                yield from (f"    {line}" for line in self.lines(node))
            elif node.op == "output":
                yield f"    return {self._argument(node.args[0])}"

    def _argument(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.names[self.case._known(value)]
        if isinstance(value, slice):
            return f"slice({value.start}, {value.stop}, {value.step})"
        if isinstance(value, (list, tuple)):
            items = ", ".join(map(self._argument, value))
            return f"[{items}]" if isinstance(value, list) else f"({items}{',' * bool(items)})"
        if isinstance(value, torch.dtype):
            return str(self.case.dtypes.get(value, value))
        return literal(value, self.case.sizes)


def _callable(target: Any) -> str:
    if isinstance(target, HigherOrderOperator):
        return f"torch.ops.higher_order.{target.__name__}"
    if isinstance(target, OpOverload):
        return f"torch.ops.{target}"
    module = target.__module__.replace("_operator", "operator")
    return f"{module}.{target.__name__}"


def _identifier(name: str) -> str:
    name = re.sub(r"\W", "_", name)
    is_taken = (
        keyword.iskeyword(name) or hasattr(builtins, name) or name in ("torch", "operator", "math")
    )
    return f"{name}_" if is_taken else name


def _short(node: Node) -> str:
    target = node.target
    if isinstance(target, OpOverload):
        return target._schema.name.partition("::")[2]
    return str(getattr(target, "__name__", target))


def _is_tensors(value: Any) -> bool:
    leaves = pytree.tree_leaves(value)
    return bool(leaves) and all(isinstance(leaf, torch.Tensor) for leaf in leaves)
