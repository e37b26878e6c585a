"""Constant folding: nodes that depend on constants alone are computed ahead of time."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import networkx
import torch
from attrs import define, field
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from etdev.graph.ops import is_functional, moves
from etdev.graph.rebuild import constant_input, fake_like
from etdev.upstream.operators import base_name, overload_of
from etdev.upstream.trees import pytree

# A node to read in place of another, or a simpler op to call in its place, with its arguments.
Simpler = Node | tuple[Any, tuple[Any, ...]]

# Only backends know the meaning of ops in other namespaces, such as quantised layers.
_NAMESPACES = ("aten", "dim_order_ops")
_QUANTISERS = "quantized_decomposed"
# Folded constants, less those that nothing else reads, may add this to a .pte, or this part of the
# constants that it has already.
MOST_BYTES = 64 << 10
MOST_PART = 1 / 16
# Views of a weight; one that only has another shape is not even copied at run time.
_VIEWS = ("permute_copy", "t_copy", "transpose_copy", "view_copy")
# ExecuTorch leaves constants of such names in the .pte where others go to a .ptd.
_PREFIX = "_lifted_tensor_"


@define(eq=False)
class Folding:
    """The known values of a graph: those of its constants, and of nodes computed from them."""

    graph: Graph
    # By the name of their input.
    constants: Mapping[str, Any]
    # Folded constants that `place` put in, by name.
    placed: dict[str, torch.Tensor] = field(factory=dict)
    # Of an op with several results, such as a split weight, all of them.
    _values: dict[Node, Any] = field(factory=dict)

    def value(self, node: object) -> Any:
        """Return the value of a node; None if it depends on inputs, state or chance."""
        if not isinstance(node, Node):
            return None
        if node in self._values:
            return self._values[node]
        value: Any = self.constants.get(node.name) if node.op == "placeholder" else None
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type != "cpu":
            return None
        return value.detach()

    def evaluate(self, node: Node) -> bool:
        """Compute a plain op from known values; return True if that was possible.

        Dequantised values are computed for an op that reads them, and not kept: backends read the
        integers, with the dequantiser as a part of a layer. So are weights that are moved then.
        """
        if not _can_be_known(node):
            return False
        dequantiser = _dequantiser_of(node)
        if dequantiser and (dequantiser is node or dequantiser.args[0] not in self._values):
            return False
        values = self._inputs_of(node)
        if values is None:
            return False
        # What grows from little would only be left out again.
        given = sum(value.nbytes for value in pytree.tree_leaves(list(values.values())))
        expected = pytree.tree_leaves(node.meta["val"])
        if sum(value.nbytes for value in expected) > max(MOST_BYTES, 2 * given):
            return False
        if (result := _result(node, values)) is None:
            return False
        made = pytree.tree_leaves(result)
        if [(v.dtype, v.shape) for v in made] != [(v.dtype, v.shape) for v in expected]:
            return False
        # Copies, since a view would keep the storage of its base.
        copies = [value.clone(memory_format=torch.contiguous_format) for value in made]
        self._values[node] = copies[0] if isinstance(result, torch.Tensor) else copies
        return True

    def _inputs_of(self, node: Node) -> dict[Node, object] | None:
        """Return the values of a node's inputs; None if one of them is unknown."""
        values: dict[Node, object] = {n: self.value(n) for n in node.all_input_nodes}
        # In two steps, since most weights that are dequantised meet what isn't known.
        later = [source for source, value in values.items() if value is None]
        if not all(map(_dequantiser_of, later)):
            return None
        for source in later:
            inner = self._inputs_of(source)
            values[source] = None if inner is None else _result(source, inner)
        return None if any(value is None for value in values.values()) else values

    def constant(self, value: torch.Tensor, near: Node) -> Node:
        """Return a new node with a value, for a node that needs it."""
        with self.graph.inserting_before(near):
            node = self.graph.call_function(_constant, (), name=near.name)
        node.meta = {"val": fake_like(value, near)}
        self._values[node] = value
        return node

    def identity(self, node: Node) -> object:
        """Return a key that two nodes share if they are known to have the same value."""
        value = self._values.get(node)
        if value is None:
            return node
        content = value.reshape(-1).view(torch.uint8).numpy().tobytes()
        return value.dtype, tuple(value.shape), content

    def place(self, first: Node) -> None:
        """Put constants, before a first node, in place of computed nodes that other nodes read."""
        same: dict[Any, Node] = {}
        known = map(self.value, self.graph.find_nodes(op="placeholder"))
        room = max(MOST_BYTES, MOST_PART * sum(v.nbytes for v in known if v is not None))
        read = dict.fromkeys(self._read())
        for nodes, freed in _groups(read, self._freed(read)):
            keys = {node: self.identity(node) for node in nodes if node.users}
            new = {key: node for node, key in keys.items() if key not in same}
            more = sum(self._values[node].nbytes for node in new.values()) - freed
            if more > room and nodes[0].target is not _constant:
                continue
            room -= max(more, 0)
            for key, node in new.items():
                same[key] = self._placeholder(node, self._values[node], first)
            for node, key in keys.items():
                node.replace_all_uses_with(same[key])
        for node in self._values:
            if node.target is _constant:
                self.graph.erase_node(node)

    def _read(self) -> Iterator[Node]:
        """Yield the nodes that only ops read: outputs and inputs of branches stay computed."""
        for node in self._values:
            users = list(node.users)
            read = any(user not in self._values for user in users)
            if read and all(overload_of(user.target) for user in users):
                yield node

    def _freed(self, read: Collection[Node]) -> Counter[frozenset[Node]]:
        """Return the bytes of constants that folding all of some nodes frees, by these nodes."""
        ends: dict[Node, set[Node]] = {}
        for node in reversed(self._values):
            inside = [ends[user] for user in node.users if user in ends]
            others = {node} if node in read else node.users.keys() - ends.keys()
            ends[node] = {*others}.union(*inside)
        freed = Counter[frozenset[Node]]()
        for constant in self.graph.find_nodes(op="placeholder"):
            readers = set[Node]().union(*(ends.get(user, {user}) for user in constant.users))
            value = self.value(constant)
            if readers and readers.issubset(read) and value is not None:
                freed[frozenset(readers)] += value.nbytes
        return freed

    def _placeholder(self, node: Node, value: torch.Tensor, first: Node) -> Node:
        with self.graph.inserting_before(first):
            placeholder = constant_input(_PREFIX + node.name.removeprefix("_"), value, near=node)
        self.placed[placeholder.name] = value
        return placeholder


def _result(node: Node, values: Mapping[Node, object]) -> object:
    """Compute a node from the values of its inputs; None if that fails."""
    known: Mapping[Node, Any] = values
    args, kwargs = map_arg((node.args, dict(node.kwargs)), known.__getitem__)
    try:
        with torch.no_grad(), _one_thread():
            return node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception:  # It fails at run time too, or has no kernel here.
        return None


def _groups(
    read: Collection[Node], freed: Mapping[frozenset[Node], int]
) -> Iterator[tuple[list[Node], int]]:
    """Yield nodes that share constants together, then each alone, with the bytes that they free."""
    parts = networkx.utils.UnionFind(read)
    for ends in freed:
        parts.union(*ends)
    groups: dict[Node, list[Node]] = {}
    spared = Counter[Node]()
    for node in read:
        groups.setdefault(parts[node], []).append(node)
    for ends, size in freed.items():
        spared[parts[next(iter(ends))]] += size
    for root, nodes in groups.items():
        if len(nodes) > 1:
            yield nodes, spared[root]
        for node in nodes:
            yield [node], freed.get(frozenset([node]), 0)


def _constant() -> None:
    """Stand for a constant until the graph is done."""


def _can_be_known(node: Node) -> bool:
    values = pytree.tree_leaves(node.meta["val"])
    if is_random(node) or _is_viewed_weight(node) or not all(map(_is_storable, values)):
        return False
    if is_quantiser(node):
        return True
    # A backend may compute in float64 and not take such a value from outside.
    given = pytree.tree_leaves([source.meta["val"] for source in node.all_input_nodes])
    kinds = {getattr(value, "dtype", None) for value in given}
    return torch.float64 in kinds or all(value.dtype != torch.float64 for value in values)


def _is_storable(value: object) -> bool:
    """Return True if a constant of a .pte can stand for a value."""
    if not isinstance(value, torch.Tensor) or not is_static(value) or not value.is_contiguous():
        return False
    return value.numel() > 0 and value.device.type == "cpu"


def _is_viewed_weight(node: Node) -> bool:
    """Return True if a node is a weight with its dimensions in another order or shape.

    A .ptd or another method knows the weight by its name, and backends look for both together.
    """
    source: Any = node.args[0] if node.args else None
    viewed = base_name(node.target) in _VIEWS
    # No backend looks for the weights of a product of batches.
    if node.users and all(base_name(user.target) == "bmm" for user in node.users):
        return False
    return viewed and isinstance(source, Node) and source.op == "placeholder"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread, since the bits of large results depend on how many there are."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_random(node: Node) -> bool:
    """Return True if the inputs of an op don't decide its result: it is random, or not set."""
    op = overload_of(node.target)
    seeded = op is not None and torch.Tag.nondeterministic_seeded in op.tags
    return seeded or "empty" in base_name(op)


def is_plain(node: Node) -> bool:
    """Return True if a node is an op of PyTorch's that computes tensors and does nothing else."""
    op = overload_of(node.target)
    if op is None or op.namespace not in _NAMESPACES or not is_functional(op):
        return False
    values = pytree.tree_leaves(node.meta.get("val"))
    return bool(values) and all(isinstance(value, torch.Tensor) for value in values)


def is_quantiser(node: Node) -> bool:
    """Return True if a node quantises, dequantises, or finds scales."""
    op = overload_of(node.target)
    return op is not None and op.namespace == _QUANTISERS and is_functional(op)


def _dequantiser_of(node: Node) -> Node | None:
    """Return the dequantiser whose values a node has, maybe moved."""
    while moves(node) and len(node.all_input_nodes) == 1:
        (node,) = node.all_input_nodes
    found = is_quantiser(node) and base_name(node.target).startswith("dequantize")
    return node if found else None


def is_part(node: Node) -> bool:
    """Return True if a node is one of several results of an op that can be known."""
    if node.target is not operator.getitem:
        return False
    return is_plain(node.all_input_nodes[0]) or is_quantiser(node.all_input_nodes[0])


def looks_like(value: object, other: object) -> bool:
    """Return True if two tensors have dtype, sizes and memory layout in common, for any size."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    # Compared as text, since comparing symbolic sizes would fix them.
    one, another = ((v.dtype, v.device, str(v.shape), str(v.stride())) for v in (value, other))
    return one == another


def is_static(value: object) -> bool:
    """Return True if a value is a tensor without a dynamic size."""
    return isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in value.shape)
