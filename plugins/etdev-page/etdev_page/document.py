"""Plain data of a page, from which its script derives everything that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etdev.schema.ledger import Entry
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.report.explanation import Explanation, Missed
from etdev.schema.report.presenters import simplified_rows
from etdev.schema.tensors import Copy, Tensor
from etdev_page.colours import colours_of
from etdev_page.graph import Edge, Graph, run_order
from etdev_page.layers import Pair, layers
from etdev_page.modules import Group, tree, walk

Json = dict[str, Any]


# Returns the number of a text in the table of texts, in which each is stored once.
Texts = Callable[[str], int]


def document(plan: Plan, times: Mapping[str, Mapping[str, float]]) -> Json:
    """Return the methods of a plan with their graphs, reasons, and milliseconds of a run.

    The times are by method, then by partition or portable node.
    """
    known: dict[str, int] = {}

    def texts(text: str) -> int:
        return known.setdefault(text, len(known))

    missed = Explanation(plan).missed
    methods = [
        _method(method, [m for m in missed if m.method == method.method], texts, times)
        for method in plan.methods
    ]
    return {
        "plugins": [list(plugin) for plugin in plan.plugins],
        "colours": colours_of(
            (name for name, _ in plan.plugins), (p.plugin for p in plan.partitions)
        ),
        "methods": methods,
        "texts": list(known),
    }


def _method(
    method: MethodPlan,
    missed: Sequence[Missed],
    texts: Texts,
    times: Mapping[str, Mapping[str, float]],
) -> Json:
    graph = Graph(method)
    ms = times.get(method.method, {})
    number = {entry.node: index for index, entry in enumerate(method.ledger)}
    return {
        "name": method.method,
        "owned": dict.fromkeys((p.plugin for p in method.partitions), 0) | method.ledger.owned(),
        "nodes": [_node(entry, texts) for entry in method.ledger],
        "partitions": [_partition(p, number, ms) for p in method.partitions],
        "vertices": _vertices(graph, number, ms, texts),
        "edges": [_edge(edge, method) for edge in graph.edges],
        "groups": _groups(graph, texts),
        "missed": [_missed(item, number) for item in missed],
        "copies": [_copy(copy) for copy in method.copies],
        "storedAgain": method.copied_bytes,
        "simplified": simplified_rows(method.simplified),
    }


def _node(entry: Entry, texts: Texts) -> list[Any]:
    """Return name, op, source op, module, line, owner, pin, and each plugin's verdict."""
    source = entry.source_op if entry.source_op != entry.op else ""
    said = [
        [texts(verdict.plugin), texts(verdict.code), texts(verdict.text)]
        for verdict in entry.verdicts
    ]
    pin = str(entry.pin) + ("" if entry.pin_kept else " (not kept)") if entry.pin else ""
    told = (entry.op, source, entry.module, entry.line, entry.holder, pin)
    return [entry.node, *map(texts, told), *(part for verdict in said for part in verdict)]


def _partition(partition: Partition, number: Mapping[str, int], ms: Mapping[str, float]) -> Json:
    return {
        "name": partition.name,
        "plugin": partition.plugin,
        "backend": partition.backend_id,
        "device": str(partition.device),
        "source": partition.device_source,
        "note": partition.device_note,
        "splitBy": partition.split_by or "",
        "nodes": [number[node] for node in partition.nodes if node in number],
        "inputs": [_tensor(tensor) for tensor in partition.inputs],
        "outputs": [_tensor(tensor) for tensor in partition.outputs],
        "constants": [[c.target, c.storage, c.size_bytes, c.copies] for c in partition.constants],
        "ms": _rounded(ms.get(partition.name)),
    }


def _tensor(tensor: Tensor) -> list[Any]:
    shape = " x ".join(map(str, tensor.shape)) or "one number"
    return [tensor.name, f"{tensor.dtype} {shape}" if tensor.is_tensor else tensor.dtype,
            tensor.size_bytes]  # fmt: skip


def _vertices(
    graph: Graph, number: Mapping[str, int], ms: Mapping[str, float], texts: Texts
) -> list[list[Any]]:
    """Return kind, number of the partition or node, module and time of each vertex."""
    partitions = {p.name: index for index, p in enumerate(graph.method.partitions)}
    of = {"partition": partitions, "node": number}
    return [
        [
            vertex.kind[0],
            of[vertex.kind][vertex.name] if vertex.kind in of else vertex.name,
            texts(vertex.module),
            _rounded(ms.get(vertex.name)) if vertex.kind == "node" else None,
        ]
        for vertex in graph.vertices
    ]


def _edge(edge: Edge, method: MethodPlan) -> list[Any]:
    """Return source, target, values, and the positions of their copies."""
    positions = {copy: index for index, copy in enumerate(method.copies)} if edge.copies else {}
    return [edge.source, edge.target, list(edge.values), [positions[c] for c in edge.copies]]


def _copy(copy: Copy) -> list[Any]:
    return [*_tensor(copy.tensor), str(copy.source), str(copy.target), copy.tensor.dynamic]


def _missed(missed: Missed, number: Mapping[str, int]) -> Json:
    return {
        "op": missed.op,
        "reasons": list(map(str, missed.reasons)),
        "nodes": [number[node] for node in missed.nodes],
        "modules": list(missed.modules),
        "lines": list(missed.lines),
    }


def _groups(graph: Graph, texts: Texts) -> list[Json]:
    """Return each group with its rows; groups are numbered after the vertices."""
    groups = walk(tree(graph))
    numbers = {id(group): len(graph.vertices) + index for index, group in enumerate(groups)}
    return [_group(graph, group, numbers, texts) for group in groups]


def _group(graph: Graph, group: Group, numbers: Mapping[int, int], texts: Texts) -> Json:
    # The position of each vertex among the children.
    home = {
        vertex: position
        for position, child in enumerate(group.children)
        for vertex in (child.vertices if isinstance(child, Group) else [child])
    }
    pairs: dict[Pair, None] = {}
    for vertex in group.vertices:
        for source in graph.neighbours[vertex]:
            if source in home and home[source] != home[vertex]:
                pairs[home[source], home[vertex]] = None
    # Children are in the order of their first vertices, in which they can run.
    order = run_order(len(group.children), pairs)
    place = {child: index for index, child in enumerate(order)}
    drawn = layers(len(order), sorted((place[source], place[target]) for source, target in pairs))
    children = [group.children[index] for index in order]
    return {
        "path": texts(group.path),
        "part": [group.part, group.parts],
        "children": [numbers[id(c)] if isinstance(c, Group) else c for c in children],
        "rows": drawn.rows,
        "ways": [[source, target, *way] for (source, target), way in drawn.ways],
    }


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 4)
