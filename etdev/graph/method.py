"""The graph of one method, indexed once, and the order in which it runs once partitioned."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import networkx
from attrs import define, field
from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node
from torch.types import PySymType

from etdev.graph.nodes import op_name
from etdev.graph.signature import user_inputs
from etdev.schema.dtypes import dtype_name
from etdev.schema.partition import Partition
from etdev.schema.tensors import Constant, Interface
from etdev.upstream.trees import pytree

# A node outside all partitions, or the position of a partition.
Unit = Node | int
_ASSERTIONS = ("aten._assert_scalar.", "aten.sym_constrain_range")
_KINDS = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}


@define(eq=False)
class MethodGraph:
    """An edge-dialect program of one method, indexed for reading.

    The numbers of its nodes are topological, since torch.fx keeps a graph in such an order: a node
    reads smaller numbers only. `convex.find_partitions` relies on that.
    """

    program: ExportedProgram
    method: str
    # Computing nodes and get_attrs in graph order; positions are their numbers.
    nodes: list[Node] = field(init=False)
    number: dict[str, int] = field(init=False)
    # For each number the numbers that its node reads.
    inputs: list[list[int]] = field(init=False)
    placeholders: dict[str, Node] = field(init=False)
    # Parameters, buffers and lifted tensors by graph input name.
    constants: dict[str, Constant] = field(init=False)
    # Names of the delegates that the program came with: call, get_attr, getitems.
    foreign: set[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        graph = self.program.graph
        self.nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        self.number = {node.name: index for index, node in enumerate(self.nodes)}
        self.inputs = [
            [self.number[n.name] for n in node.all_input_nodes if n.name in self.number]
            for node in self.nodes
        ]
        self.placeholders = {node.name: node for node in graph.find_nodes(op="placeholder")}
        self.constants = {each.name: each for each in _constants(self.program)}
        self.foreign = set(_foreign(self.nodes))

    @cached_property
    def ops(self) -> dict[str, str]:
        """The op of each computing node by name, getitems and get_attrs left out."""
        return {
            node.name: op_name(node)
            for node in self.nodes
            if node.op == "call_function" and node.target is not operator.getitem
        }

    def interface(self) -> Interface:
        """Return the names of its inputs and outputs, and the sizes of the buffers it writes."""
        inputs = [name for name, _ in user_inputs(self.program)]
        tree = self.program.call_spec.out_spec
        empty = pytree.tree_unflatten([None] * tree.num_leaves, tree) if tree else ()
        paths, _ = pytree.tree_flatten_with_path(empty)
        state = {each.target: each.shape for each in self.constants.values() if each.mutated}
        return Interface(inputs, [_output(path) for path, _ in paths], state)

    def node(self, name: str) -> Node:
        """Return the computing node or get_attr of a name; raise KeyError if there is none."""
        return self.nodes[self.number[name]]

    def with_followers(self, numbers: Iterable[int]) -> list[int]:
        """Complete some nodes with all that can't be separated from them, ascending.

        The getitems of an op with several outputs go with it, and the get_attr of a control-flow
        branch with the op that calls it.
        """
        complete = set(numbers)
        work = list(complete)
        while work:
            node = self.nodes[work.pop()]
            tied = [user for user in node.users if user.target is operator.getitem]
            tied += [n for n in node.all_input_nodes if n.op == "get_attr" and len(n.users) == 1]
            new = {self.number[n.name] for n in tied} - complete
            complete |= new
            work += new
        return sorted(complete)

    def reads(self, numbers: Iterable[int]) -> list[Node]:
        """Return the values that nodes read from outside, constants too, in order of first use."""
        inside = {self.nodes[number].name for number in numbers}
        outside: dict[str, Node] = {}
        for number in sorted(numbers):
            for source in self.nodes[number].all_input_nodes:
                if source.name not in inside:
                    outside.setdefault(source.name, source)
        return list(outside.values())

    def outputs(self, numbers: Iterable[int]) -> list[Node]:
        """Return those of some nodes that nodes outside read, in graph order."""
        inside = {self.nodes[number].name for number in numbers}
        return [
            self.nodes[number]
            for number in sorted(numbers)
            if any(user.name not in inside for user in self.nodes[number].users)
        ]


def _output(path: Iterable[Any]) -> str:
    """Return the name of an output by its path: `logits`, or `output0` of a tuple."""
    names = (getattr(key, "key", getattr(key, "name", getattr(key, "idx", ""))) for key in path)
    name = "_".join(map(str, names))
    return name if name[:1].isalpha() else f"output{name}"


def _constants(program: ExportedProgram) -> Iterable[Constant]:
    updates = {v: k for k, v in program.graph_signature.buffers_to_mutate.items()}
    for spec in program.graph_signature.input_specs:
        if spec.kind not in _KINDS:
            continue
        target = str(spec.target)
        value: Any = program.state_dict.get(target, program.constants.get(target))
        yield Constant(
            name=spec.arg.name,
            target=target,
            kind=_KINDS[spec.kind],
            dtype=dtype_name(value.dtype),
            shape=tuple(int(size) for size in value.shape),
            size_bytes=value.numel() * value.element_size(),
            update=updates.get(target),
        )


def _foreign(nodes: list[Node]) -> Iterable[str]:
    for node in nodes:
        if node.target is executorch_call_delegate:
            yield node.name
            yield node.all_input_nodes[0].name
            yield from (user.name for user in node.users if user.target is operator.getitem)


def run_order(graph: Graph, partitions: Sequence[Partition]) -> list[Unit]:
    """Order nodes and partitions so that each comes after what it reads, else as in the graph.

    Walks from each node to its inputs; a partition is one stop on the way. Assertions about a
    number come before its readers: later traces know its bounds from nowhere else. Placeholders and
    the output have no place in the order.
    """
    nodes = {node.name: node for node in graph.nodes}
    home = {name: index for index, p in enumerate(partitions) for name in p.nodes}
    asserted = _assertions(graph)

    def sources(unit: Unit) -> list[Unit]:
        if isinstance(unit, int):
            read = [nodes[tensor.name] for tensor in partitions[unit].inputs]
        else:
            read = [*unit.all_input_nodes, *asserted.get(unit, ())]
        return [home.get(node.name, node) for node in read if node.op != "placeholder"]

    units = (home.get(n.name, n) for n in graph.nodes if n.op not in ("placeholder", "output"))
    reads = {unit: sources(unit) for unit in units}
    reading = networkx.from_dict_of_lists(reads, networkx.DiGraph)
    return list(networkx.dfs_postorder_nodes(reading))


def _assertions(graph: Graph) -> dict[Node, list[Node]]:
    """Return the assertions about the numbers that a node reads, by node."""
    origins: dict[Node, set[Node]] = {}
    asserted: dict[Node, set[Node]] = {}
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        numbers = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), PySymType)]
        if not numbers:
            continue
        known = {origin for number in numbers for origin in origins.get(number, {number})}
        if isinstance(node.meta.get("val"), PySymType):
            origins[node] = known
        elif op_name(node).startswith(_ASSERTIONS):
            # Sizes of inputs are known before all partitions.
            sizes = (n for n in known if {s.op for s in n.all_input_nodes} == {"placeholder"})
            asserted[node] = known.difference(sizes) or known
        else:
            # One that needs more numbers may depend on a partition that needs this reader.
            readers[node] = [a for a, about in asserted.items() if about <= known]
    return readers
