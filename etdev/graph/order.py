"""The order in which a partitioned method runs: its single nodes and its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from executorch.exir.delegate import executorch_call_delegate
from torch.fx import Graph, Node

from etdev.schema.plan import Partition

# A node outside all partitions, or the position of a partition.
Unit = Node | int


def run_order(graph: Graph, partitions: Sequence[Partition]) -> list[Unit]:
    """Order nodes and partitions so that each comes after what it reads, else as in the graph.

    Walks from each node to what it reads; a partition is one stop on the way.

    Args:
        graph: The method; placeholders and output have no place in the order.
        partitions: Its partitions with their inputs; together they must be convex.
    """
    nodes = {node.name: node for node in graph.nodes}
    home = {name: index for index, p in enumerate(partitions) for name in p.nodes}

    def sources(unit: Unit) -> list[Unit]:
        if isinstance(unit, int):
            read = [nodes[tensor.name] for tensor in partitions[unit].inputs]
        else:
            read = unit.all_input_nodes
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


def delegates_of(order: Sequence[Unit], partitions: Sequence[Partition]) -> Iterator[str]:
    """Names of all delegates in run order: partitions, and calls that were in the program."""
    for unit in order:
        if isinstance(unit, int):
            yield partitions[unit].name
        elif unit.target is executorch_call_delegate:
            yield unit.name
