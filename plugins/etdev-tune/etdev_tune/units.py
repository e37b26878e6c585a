"""Units of a plan that move between plugins: the nodes of one op in one source module."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.nodes import op_name, upper_bound
from etdev.schema import reasons
from etdev.schema.ledger import Entry
from etdev.schema.pins import PORTABLE
from etdev.schema.plan import MethodPlan, Plan

# Verdicts on nodes that a plugin wanted, and may get where they are pinned to it.
_WANTED = {
    reason.code
    for reason in (
        *(reasons.CLAIMED, reasons.LOST, reasons.LOST_GROUP, reasons.CONVEXITY),
        *(reasons.MIN_NODES, reasons.MAX_PARTITIONS),
    )
}
_PRODUCTS = ("mm", "bmm", "addmm", "linear", "convolution", "baddbmm", "matmul", "einsum")

# Method, module and op of a unit.
Key = tuple[str, str, str]


@frozen
class Work:
    """Amount of work of some nodes.

    Args:
        products: Multiplications of products and convolutions.
        elements: Elements that all other nodes write.
    """

    products: float = 0.0
    elements: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.products + other.products, self.elements + other.elements)


@frozen
class Unit:
    """Nodes that move together.

    Args:
        key: Method, path of the module, op of the exported program.
        nodes: Names of the nodes, in graph order.
        owner: The plugin that owns most of them, or `portable`.
        wanted: Plugins that wanted one of them.
        work: Amount of work.
        shapes: Ops with their shapes, by which equal units are found.
        kernels: Ops of the nodes, each once.
    """

    key: Key
    nodes: tuple[str, ...]
    owner: str
    wanted: frozenset[str]
    work: Work
    shapes: str
    kernels: tuple[str, ...]

    @property
    def structure(self) -> tuple[str, str]:
        """Op and shapes, which equal units in other modules share."""
        return self.key[2], self.shapes


def units_of(plan: Plan, works: Mapping[str, Mapping[str, tuple[Work, str]]]) -> list[Unit]:
    """Return the units of all methods, in the order of their first nodes.

    Args:
        plan: The plan.
        works: Work and shapes, by method and node.
    """
    return [unit for method in plan.methods for unit in _of_method(method, works[method.method])]


def works_of(
    programs: Mapping[str, ExportedProgram],
) -> dict[str, dict[str, tuple[Work, str]]]:
    """Return work and shapes, by method and node."""
    return {
        name: {node.name: _work(node) for node in program.graph.nodes if node.op == "call_function"}
        for name, program in programs.items()
    }


def _of_method(plan: MethodPlan, works: Mapping[str, tuple[Work, str]]) -> Iterator[Unit]:
    groups: dict[Key, list[Entry]] = {}
    for entry in plan.ledger:
        if not entry.foreign and entry.op != "getitem":
            key = plan.method, entry.module, entry.source_op or entry.op
            groups.setdefault(key, []).append(entry)
    for key, entries in groups.items():
        owners = [entry.holder for entry in entries]
        known = [works.get(entry.node, (Work(), "")) for entry in entries]
        yield Unit(
            key=key,
            nodes=tuple(entry.node for entry in entries),
            owner=max(dict.fromkeys(owners), key=owners.count),
            wanted=frozenset(
                verdict.plugin
                for entry in entries
                for verdict in entry.verdicts
                if verdict.code in _WANTED or verdict.plugin == entry.owner
                if verdict.plugin != PORTABLE
            ),
            work=sum((work for work, _ in known), Work()),
            shapes="; ".join(shapes for _, shapes in known),
            kernels=tuple(dict.fromkeys(entry.op for entry in entries)),
        )


def choices(unit: Unit, plugins: Iterable[str]) -> list[str]:
    """Return the possible owners of a unit: plugins that wanted it, and portable kernels."""
    return [*(name for name in plugins if name in unit.wanted), PORTABLE]


def owned(units: Iterable[Unit]) -> dict[Key, str]:
    """Return the owner of each unit."""
    return {unit.key: unit.owner for unit in units}


def moved(units: Iterable[Unit], owners: Mapping[Key, str]) -> list[Unit]:
    """Return the units with other owners."""
    return [evolve(unit, owner=owners.get(unit.key, unit.owner)) for unit in units]


def _work(node: Node) -> tuple[Work, str]:
    out = _sizes(node)
    inputs = [_sizes(source) for source in node.all_input_nodes]
    text = f"{op_name(node)} {inputs} {out}"
    elements = sum(math.prod(sizes) for sizes in out)
    name = op_name(node).split(".")[1] if "." in op_name(node) else ""
    if name not in _PRODUCTS or len(inputs) < 2:
        return Work(0.0, float(elements)), text
    return Work(float(elements * _depth(name, inputs)), 0.0), text


def _depth(name: str, inputs: list[list[list[int]]]) -> int:
    """Return the number of multiplications for one element of the output."""
    tensors = [sizes[0] for sizes in inputs if sizes and sizes[0]]
    if name == "convolution" and len(tensors) > 1:
        return math.prod(tensors[1][1:])
    if name == "addmm" and len(tensors) > 2:
        return tensors[1][-1]
    return tensors[0][-1] if tensors else 1


def _sizes(node: Node) -> list[list[int]]:
    value: Any = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [
        [upper_bound(size) or 1 for size in item.shape]
        for item in values
        if isinstance(item, torch.Tensor)
    ]
