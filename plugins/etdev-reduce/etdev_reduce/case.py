"""Cases: parts of an exported program that run alone, written as plain torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import indent
from typing import Any

import torch
from attrs import evolve, field, frozen
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree

from etdev.graph import written_by
from etdev_reduce import values
from etdev_reduce.recording import Recording, short_name

# Ops that arrange, cast or quantise values, and compute none.
_VIEWS = (
    *("view", "reshape", "permute", "transpose", "unsqueeze", "squeeze", "expand", "slice"),
    *("alias", "detach", "clone", "to", "_to_copy", "getitem", "sym_size", "select", "t"),
    *("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel"),
    *("dequantize_per_channel", "contiguous", "lift_fresh_copy", "flatten"),
)
_INIT = "    def __init__(self):\n        super().__init__()\n"
# What fx writes behind a statement, to free values early.
_FREED = re.compile(r";  (?:\w+ = )+None$", re.MULTILINE)


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
        return [node for node in self.nodes if short_name(node) not in _VIEWS] or [*self.nodes]

    @property
    def reads(self) -> list[Node]:
        """The nodes that the case doesn't compute and reads, in order of use."""
        own = {*self.nodes}
        found = (self._known(n) for node in self.nodes for n in node.all_input_nodes)
        others = dict.fromkeys(node for node in found if node not in own)
        # Branches of control flow are members of the module.
        return [n for n in others if not isinstance(self.captured_value(n), GraphModule)]

    @property
    def outputs(self) -> list[Node]:
        """The nodes whose values nothing in the case reads, and those that the program returns."""
        read = {self._known(n) for node in self.nodes for n in node.all_input_nodes}
        ends = (n for n in self.nodes if n not in read or n in self.recording.returned)
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

    @property
    def groups(self) -> list[tuple[Node, ...]]:
        """The nodes, those of a pattern together."""
        own = {*self.nodes}
        found = (tuple(filter(own.__contains__, group)) for group in self.recording.groups)
        return [group for group in found if group]

    @property
    def floats(self) -> list[torch.dtype]:
        """The dtypes that float32 may replace."""
        known = {self.captured_value(node).dtype for node in self.tensors}
        floats = {dtype for dtype in known if dtype.is_floating_point}
        return sorted(floats - {torch.float32, *self.dtypes}, key=str)

    def larger(self, size: int) -> list[int]:
        """Return the sizes of its tensors that are now larger than another one."""
        calls = (self.recording.calls[number] for number in self.calls)
        shapes = (call[node.name].shape for call in calls for node in self.tensors)
        sizes = sorted({own for shape in shapes for own in shape})
        return [own for own in sizes if self.sizes.get(own, own) > size]

    def like(self, node: Node) -> list[Node]:
        """Return the nodes whose values may stand for a node's: its inputs, or earlier tensors."""
        given = self.tensors
        others = given[: given.index(node)] if node in given else []
        if node in self.nodes[1:]:
            others = node.all_input_nodes
        kind = _kind(self.captured_value(node))
        return [other for other in others if _kind(self.captured_value(other)) == kind]

    def only(self, groups: Sequence[Sequence[Node]]) -> Case:
        """Return the case with some of its nodes."""
        kept = {node for group in groups for node in group}
        return evolve(self, nodes=tuple(filter(kept.__contains__, self.recording.nodes)))

    def put(self, name: str, new: object, old: Sequence[Any], kept: Sequence[Any]) -> Case:
        """Return the case with a fill, size or dtype in place of old ones, but for some.

        Args:
            name: The field that has what stands for what.
            new: The fill, size or dtype.
            old: What it stands for.
            kept: Those that stay.
        """
        made = dict.fromkeys({*old} - {*kept}, new)
        changed: dict[str, Any] = {name: {**getattr(self, name), **made}}
        return evolve(self, **changed)

    def without(self, node: Node, instead: Node) -> Case:
        """Return the case with another node's value in place of a node's."""
        nodes = tuple(other for other in self.nodes if other is not node)
        return evolve(self, nodes=nodes, aliases={**self.aliases, node: instead})

    def held(self) -> dict[int, str]:
        """Return the sources of its weights and states, by where they lie in memory."""
        known = {self._place(node): node for node in self._weights if self._place(node)}
        return {place: self._made(node, self.calls[0]) for place, node in known.items()}

    def model(self, name: str, shared: Mapping[int, str]) -> str:
        """Return the source of the class of its model.

        Args:
            name: Of the class.
            shared: Variables with what other models have, too, by where that lies in memory.
        """
        made = (
            (n.name, shared.get(self._place(n)) or self._made(n, self.calls[0]))
            for n in self._weights
        )
        members = (f"self.register_buffer({own!r}, {value})" for own, value in made)
        return self._module(name, self._graph(), self.recording.module, members)

    def inputs(self) -> str:
        """Return the source of the list of the inputs of its calls."""
        calls = (_tuple([self._made(n, call) for n in self._inputs]) for call in self.calls)
        return f"[{', '.join(calls)}]"

    def shapes(self) -> str:
        """Return the source of its sizes that vary, as `torch.export.export` takes them."""
        known = self.recording.program.range_constraints
        varying = (
            [
                f"{dim}: {_dynamic(known.get(size.node.expr))}"
                for dim, size in enumerate(node.meta["val"].shape)
                if self.dynamic and isinstance(size, torch.SymInt)
            ]
            for node in self._inputs
        )
        return _tuple([f"{{{', '.join(dims)}}}" for dims in varying])

    @property
    def _weights(self) -> list[Node]:
        """The tensors that are no inputs: weights, and states that its nodes write to."""
        written = {n for node in self.nodes for n in written_by(node) if n.op == "get_attr"}
        return [n for n in self.tensors if n.name in self.recording.constants or n in written]

    @property
    def _inputs(self) -> list[Node]:
        """The tensors that its calls are given."""
        weights = {*self._weights}
        return [node for node in self.tensors if node not in weights]

    def _place(self, node: Node) -> int:
        """Return where a weight or a state lies in memory; 0 for another value."""
        return self.recording.places.get(str(node.target), 0)

    def _known(self, node: Node) -> Node:
        while node in self.aliases:
            node = self.aliases[node]
        return node

    def _made(self, node: Node, call: int) -> str:
        """Return the source of the value of a tensor in a call."""
        value, fill = self.recording.calls[call][node.name], self.fills.get(node.name)
        shape = [self.sizes.get(size, size) for size in value.shape]
        dtype = self.dtypes.get(value.dtype, value.dtype)
        if fill:
            return values.made(value, fill, shape, dtype)
        return values.captured(value, self.recording.key(node.name, call), shape, dtype)

    def _graph(self) -> Graph:
        graph = Graph()
        # Numbers that it reads stand in the source.
        known: dict[Node, Any] = {node: self.captured_value(node) for node in self.reads}
        known |= {node: graph.placeholder(node.name) for node in self._inputs}
        known |= {node: graph.get_attr(node.name) for node in self._weights}
        for node in self.nodes:
            for given in node.all_input_nodes:
                if given in self.aliases:
                    known[given] = known[self._known(given)]
                elif given not in known:
                    known[given] = graph.get_attr(str(given.target))
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


# Cases by method.
Cases = Mapping[str, Case]


def kept(cases: Cases) -> dict[str, Any]:
    """Return the captured values that the sources of cases read, by key."""
    return {
        case.recording.key(name, call): case.recording.calls[call][name]
        for case in cases.values()
        for name in case.captured
        for call in case.calls
    }


def _dynamic(known: Any) -> str:
    """Return the source of a size that varies within known bounds, if they are known."""
    is_bounded = known is not None and known.upper < 2**31
    bounds = f"(min={int(known.lower)}, max={int(known.upper)})" if is_bounded else ""
    return f"torch.export.Dim.DYNAMIC{bounds}"


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def _is_tensors(value: Any) -> bool:
    leaves = pytree.tree_leaves(value)
    return bool(leaves) and all(isinstance(leaf, torch.Tensor) for leaf in leaves)


def _kind(value: Any) -> tuple[Any, ...] | None:
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else None
