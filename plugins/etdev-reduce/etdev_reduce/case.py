"""Cases: parts of an exported program that run alone, written as plain torch."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from textwrap import indent
from typing import Any

import torch
from attrs import define, evolve, field, frozen
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree

from etdev import EtdevError
from etdev.app import EagerMethod
from etdev_reduce import values
from etdev_reduce.failure import first_line

_VIEWS = (
    *("view", "reshape", "permute", "transpose", "unsqueeze", "squeeze", "expand", "slice"),
    *("alias", "detach", "clone", "to", "_to_copy", "getitem", "sym_size", "select", "t"),
    *("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel"),
    *("dequantize_per_channel", "contiguous", "lift_fresh_copy", "flatten"),
)
_INIT = "    def __init__(self):\n        super().__init__()\n"
# What fx writes behind a statement, to free values early.
_FREED = re.compile(r";  (?:\w+ = )+None$", re.MULTILINE)


# Not slotted, for its cached members.
@define(eq=False, slots=False)
class Recording:
    """An exported program and the values of its nodes in some calls.

    Args:
        program: The program.
        drawn: For each call, whether it is far from the example.
        calls: The values by name of the node, by number of the call.
        states: Names of the inputs that are buffers or parameters which calls write to.
        constants: Names of the other weights, and of nodes that are computed from these alone.
    """

    program: ExportedProgram
    drawn: Sequence[bool]
    calls: dict[int, Mapping[str, Any]] = field(factory=dict, init=False)
    states: frozenset[str] = field(init=False)
    constants: frozenset[str] = field(init=False)

    @classmethod
    def of(
        cls,
        program: ExportedProgram,
        calls: Sequence[Sequence[Any]],
        inner: Container[int] | None = None,
        drawn: Sequence[bool] = (False,),
    ) -> Recording:
        """Call a program in eager PyTorch, each time in the state of the last.

        Args:
            program: The program.
            calls: The flat inputs of each call.
            inner: Numbers of the calls whose inner values are kept beside inputs and weights; None
                for all.
            drawn: For each call, whether it is far from the example.

        Raises:
            EtdevError: Eager PyTorch can't run it.
        """
        recording, signature = cls(program, drawn), program.graph_signature
        held = {**program.constants, **program.state_dict}
        held = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, held)
        specs = (spec for spec in signature.input_specs if spec.arg.name in recording.states)
        written = {spec.target for spec in specs}
        held |= {name: held[name].clone() for name in written}
        for number, inputs in enumerate(calls):
            given = iter(pytree.tree_map_only(torch.Tensor, torch.clone, [*inputs]))
            names = (spec.target for spec in signature.input_specs)
            arguments = [held[name] if name in held else next(given) for name in names]
            recorder = _Recorder(recording, inner is None or number in inner)
            try:
                with torch.no_grad():
                    results = recorder.run(*arguments)
            except Exception as error:
                what = f"can't be run in eager PyTorch: {first_line(error)}"
                raise EtdevError("the model", what, "give inputs that it takes") from error
            pairs = zip(signature.output_specs, results, strict=True)
            held |= {spec.target: value for spec, value in pairs if spec.target in held}
            recording.calls[number] = recorder.seen
        return recording

    def __attrs_post_init__(self) -> None:
        specs = self.program.graph_signature.input_specs
        held = {spec.target: spec.arg.name for spec in specs if spec.target}
        written = {held[name] for name in EagerMethod.written(self.program) if name in held}
        # A function returns new values instead, and takes the old ones as inputs.
        is_function = bool(self.program.graph_signature.buffers_to_mutate)
        self.states = frozenset() if is_function else frozenset(written)
        known = {*held.values()} - written
        for node in self.nodes:
            if node.all_input_nodes and all(n.name in known for n in node.all_input_nodes):
                known.add(node.name)
        self.constants = frozenset(known)

    def key(self, name: str, call: int) -> str:
        """Return the key under which sources read the value of a node in a call."""
        return name if name in self.constants else f"{name}_of_call_{call}"

    def values(self) -> dict[str, Any]:
        """Return all tensors by their keys."""
        return {
            self.key(name, number): value
            for number, call in self.calls.items()
            for name, value in call.items()
            if isinstance(value, torch.Tensor)
        }

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
        group: dict[Node, list[Node]] = {}
        for node in self.nodes:
            inputs = [n for n in node.all_input_nodes if n in group]
            name = _short(node)
            joins = inputs and (name == "getitem" or name.startswith("quantize_per"))
            own = group[inputs[0]] if joins else []
            own.append(node)
            group[node] = own
            for given in inputs:
                is_private = _short(given).startswith("dequantize_per") and len(given.users) == 1
                if is_private and group[given] is not own:
                    own[:0] = group[given]
                    group.update(dict.fromkeys(group[given], own))
        return list({id(own): tuple(own) for own in group.values()}.values())


class _Recorder(Interpreter):
    """An interpreter that keeps a copy of each value which a later op may write to."""

    def __init__(self, recording: Recording, inner: bool) -> None:
        super().__init__(recording.program.graph_module)
        self.seen: dict[str, Any] = {}
        self._recording, self._inner = recording, inner

    def run_node(self, n: Node) -> Any:
        """Run a node, and copy its result, in an order that the runtime takes as an input."""
        value = super().run_node(n)
        known = next(iter(self._recording.calls.values()), {})
        is_given = n.op == "placeholder"
        if n.name in self._recording.constants and (is_given or n.name in known):
            self.seen[n.name] = known.get(n.name, value)
        elif is_given or (self._inner and n.op == "call_function"):
            copied = _copied if is_given else _ordered
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
        """The nodes that compute, or all if there are only views, casts and quantisers."""
        return [node for node in self.nodes if _short(node) not in _VIEWS] or [*self.nodes]

    @property
    def reads(self) -> list[Node]:
        """The nodes that the case doesn't compute and reads, in order of use."""
        own = {*self.nodes}
        found = (self._known(n) for node in self.nodes for n in node.all_input_nodes)
        # Branches of control flow are members of the module.
        return list(dict.fromkeys(n for n in found if n not in own and n.op != "get_attr"))

    @property
    def outputs(self) -> list[Node]:
        """The nodes whose values nothing in the case reads, and those that the program returns."""
        read = {self._known(n) for node in self.nodes for n in node.all_input_nodes}
        returned = {*self.recording.program.graph_signature.user_outputs}
        ends = (node for node in self.nodes if node not in read or node.name in returned)
        return [node for node in ends if _is_tensors(node.meta.get("val"))]

    @property
    def tensors(self) -> list[Node]:
        """The tensors that it reads."""
        return [n for n in self.reads if isinstance(self.captured_value(n), torch.Tensor)]

    @property
    def captured(self) -> list[str]:
        """Names of the tensors that it reads as they were in the user's model."""
        return [node.name for node in self.tensors if node.name not in self.fills]

    def captured_value(self, node: Node) -> Any:
        """Return the value of a node in the first call; None if it has none."""
        return self.recording.calls[self.calls[0]].get(node.name)

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
        held = self.recording.constants | self.recording.states
        weights = [n for n in self.tensors if n.name in held]
        inputs = [n for n in self.tensors if n not in weights]
        graph = self._graph(inputs, weights)
        made = (
            f"self.register_buffer({n.name!r}, {self._made(n, self.calls[0])})" for n in weights
        )
        model = self._module("Model", graph, self.recording.program.graph_module, made)
        calls = [f"({''.join(f'{self._made(n, call)}, ' for n in inputs)})" for call in self.calls]
        given = f"calls = [{', '.join(calls)}]"
        shapes = self._dynamic_shapes(inputs) if self.dynamic else "None"
        return (
            f"{model}torch.manual_seed(0)\nmodel = Model().eval()\n{given}\n"
            f"dynamic_shapes = {shapes}\n"
        )

    def kept(self) -> dict[str, Any]:
        """Return the captured values that the source reads, by key."""
        return {
            self.recording.key(name, call): self.recording.calls[call][name]
            for name in self.captured
            for call in self.calls
        }

    def _made(self, node: Node, call: int) -> str:
        """Return the source of the value of a tensor in a call."""
        value, fill = self.recording.calls[call][node.name], self.fills.get(node.name)
        shape = [self.sizes.get(size, size) for size in value.shape]
        dtype = self.dtypes.get(value.dtype, value.dtype)
        if fill:
            return values.made(value, fill, shape, dtype)
        return values.captured(value, self.recording.key(node.name, call), shape, dtype)

    def _graph(self, inputs: Sequence[Node], weights: Sequence[Node]) -> Graph:
        graph = Graph()
        # Numbers that it reads stand in the source.
        known: dict[Node, Any] = {node: self.captured_value(node) for node in self.reads}
        known |= {node: graph.placeholder(node.name) for node in inputs}
        known |= {node: graph.get_attr(node.name) for node in weights}
        for node in self.nodes:
            branches = (n for n in node.all_input_nodes if n.op == "get_attr")
            known |= {n: graph.get_attr(str(n.target)) for n in branches if n not in known}
            known |= {n: known[self._known(n)] for n in node.all_input_nodes if n in self.aliases}
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = graph.create_node(node.op, node.target, args, kwargs, name=node.name)
        graph.output(tuple(known[node] for node in self.outputs))
        return graph

    def _module(
        self, name: str, graph: Graph, owner: GraphModule, members: Iterable[str] = ()
    ) -> str:
        """Return the source of a module, behind those of the branches that it calls."""
        before, members = "", [*members]
        for node in graph.nodes:
            node.args, node.kwargs = map_aggregate((node.args, node.kwargs), self._changed)
            branch = getattr(owner, str(node.target), None) if node.op == "get_attr" else None
            if isinstance(branch, GraphModule):
                kind, inner = name + str(node.target).title().replace("_", ""), Graph()
                inner.output(inner.graph_copy(branch.graph, {}))
                before += self._module(kind, inner, branch)
                members.append(f"self.{node.target} = {kind}()")
        forward = indent(_FREED.sub("", graph.python_code("self").src).strip(), " " * 4)
        init = _INIT + indent("\n".join(members), " " * 8) + "\n\n" if members else ""
        return f"{before}class {name}(torch.nn.Module):\n{init}{forward}\n\n\n"

    def _changed(self, value: Any) -> Any:
        """Return a number or dtype among the arguments of a node as the case has it."""
        if isinstance(value, torch.dtype):
            return self.dtypes.get(value, value)
        return self.sizes.get(value, value) if type(value) is int else value

    def _dynamic_shapes(self, inputs: Sequence[Node]) -> str:
        ranges = self.recording.program.range_constraints
        shapes = (
            ", ".join(
                f"{dim}: {_dynamic(ranges.get(size.node.expr))}"
                for dim, size in enumerate(node.meta["val"].shape)
                if isinstance(size, torch.SymInt)
            )
            for node in inputs
        )
        return f"({''.join(f'{{{shape}}}, ' for shape in shapes)})"


def _dynamic(known: Any) -> str:
    """Return the source of a size that varies within known bounds, if they are known."""
    is_bounded = known is not None and known.upper < 2**31
    bounds = f"(min={int(known.lower)}, max={int(known.upper)})" if is_bounded else ""
    return f"torch.export.Dim.DYNAMIC{bounds}"


def _short(node: Node) -> str:
    target = node.target
    if isinstance(target, OpOverload):
        return target._schema.name.partition("::")[2]
    return str(getattr(target, "__name__", target))


def _is_tensors(value: Any) -> bool:
    leaves = pytree.tree_leaves(value)
    return bool(leaves) and all(isinstance(leaf, torch.Tensor) for leaf in leaves)
