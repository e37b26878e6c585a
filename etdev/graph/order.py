"""The order in which a partitioned method runs: its single nodes and its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from executorch.exir.delegate import executorch_call_delegate
from torch.fx import Graph, Node
from torch.types import PySymType

from etdev.graph.nodes import op_name
from etdev.schema.partition import Partition

# A node outside all partitions, or the position of a partition.
Unit = Node | int
_ASSERTIONS = ("aten._assert_scalar.", "aten.sym_constrain_range")


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

    order: list[Unit] = []
    finished: dict[Unit, bool] = {}
    for root in graph.nodes:
        if root.op in ("placeholder", "output"):
            continue
        work = [home.get(root.name, root)]
        while work:
            unit = work[-1]
            if unit not in finished:
                finished[unit] = False
                work.extend(reversed([u for u in sources(unit) if u not in finished]))
            else:
                work.pop()
                if not finished[unit]:
                    finished[unit] = True
                    order.append(unit)
    return order


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
            asserted[node] = known
        else:
            # One that needs more numbers may depend on a partition that needs this reader.
            readers[node] = [a for a, about in asserted.items() if about <= known]
    return readers


def delegates_of(order: Sequence[Unit], partitions: Sequence[Partition]) -> Iterator[str]:
    """Yield the names of all delegates in run order: partitions, and calls of the program."""
    for unit in order:
        if isinstance(unit, int):
            yield partitions[unit].name
        elif unit.target is executorch_call_delegate:
            yield unit.name
