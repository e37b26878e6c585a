"""The sweep: one pass over a graph, in which every node is tried once, after its inputs were."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)
from torch.fx import Graph, Node

from etdev.edge.simplify import copies, masks, scalars
from etdev.edge.simplify.folding import Folding
from etdev.edge.simplify.values import is_plain, is_random
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.signature import unwritten_constants
from etdev.graph.simplified import note


@define(eq=False)
class Sweep:
    """Simplifies one method.

    Args:
        program: An edge-dialect program without delegates; it is not changed.
        counts: How often each kind of simplification was made.
    """

    program: ExportedProgram
    counts: Counter[str] = field(factory=Counter)
    _graph: Graph = field(init=False)
    _folding: Folding = field(init=False)
    _known: dict[Any, Node] = field(factory=dict)
    _written: frozenset[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._graph = copy_graph(self.program.graph)
        self._folding = Folding(self._graph, self._constants())
        written = set(self.program.graph_signature.buffers_to_mutate.values())
        inputs = self.program.graph_signature.inputs_to_buffers.items()
        self._written = frozenset(name for name, target in inputs if target in written)

    def simplified(self) -> ExportedProgram:
        """The program without what computes nothing new; the same one if there is nothing."""
        unread = {n for n in self._graph.find_nodes(op="placeholder") if not n.users}
        for node in list(self._graph.nodes):
            if is_plain(node):
                self._try(node)
        self._folding.place(_first_input(self._graph, self.program))
        self._remove_unused()
        rest = set(self._graph.nodes)
        self.counts["constants"] += sum(node not in rest for node in self._folding.evaluated)
        self.counts = +self.counts
        if not self.counts:
            return self.program
        return self._rebuilt(unread)

    def _constants(self) -> dict[str, Any]:
        """Values of the constants that nothing writes, by input."""
        values = {**self.program.constants, **self.program.state_dict}
        targets = unwritten_constants(self.program)
        return {name: values[target] for name, target in targets.items() if target in values}

    def _try(self, node: Node) -> None:
        if self._folding.evaluate(node):
            return
        if copies.merge(node):
            self.counts["copies"] += 1
        if source := self._source(node):
            self._replace(node, source, "copies")
        if not node.users:
            return
        for kind, rule in _RULES.items():
            replacement = rule(node, self._folding)
            if replacement is node:
                self.counts[kind] += 1
            elif replacement is not None:
                self._replace(node, replacement, kind)
                return
        self._share(node)

    def _source(self, node: Node) -> Node | None:
        """What a node only copies, where that may be read in its place."""
        source = copies.source_of(node)
        # What a method returns or writes stays a tensor of its own.
        if source is None or source.name in self._written or _is_returned(node):
            return None
        return source

    def _replace(self, node: Node, source: Node, kind: str) -> None:
        if _is_returned(node):
            return
        node.replace_all_uses_with(source)
        # Others ask how many users its inputs have.
        self._graph.erase_node(node)
        self.counts[kind] += 1

    def _share(self, node: Node) -> None:
        """Have a node computed once that is computed twice."""
        key = self._key(node)
        if key is None:
            return
        first = self._known.setdefault(key, node)
        if first is not node:
            self._replace(node, first, "duplicates")

    def _key(self, node: Node) -> Any:
        """What two nodes have in common that compute the same; None if that can't be told."""
        if is_random(node):
            return None
        try:
            key = (node.target, *map(self._frozen, (node.args, sorted(node.kwargs.items()))))
            hash(key)
        except TypeError:
            return None
        return key

    def _frozen(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(map(self._frozen, value))
        if isinstance(value, Node):
            return self._folding.identity(value)
        # 1 and True and 1.0 are equal, and 0.0 and -0.0.
        return (type(value), repr(value)) if isinstance(value, (bool, int, float)) else value

    def _remove_unused(self) -> None:
        """Remove what nothing reads, last ones first, so that what they read is removed too."""
        for node in reversed(list(self._graph.nodes)):
            removable = is_plain(node) or node.target is operator.getitem
            if removable and not node.users:
                self._graph.erase_node(node)

    def _rebuilt(self, unread: set[Node]) -> ExportedProgram:
        folded = self._folding.placed
        signature = self.program.graph_signature
        kept = []
        nodes = {node.name: node for node in self._graph.find_nodes(op="placeholder")}
        unwritten = unwritten_constants(self.program)
        for spec in signature.input_specs:
            node = nodes.get(getattr(spec.arg, "name", ""))
            if node and node.name in unwritten and not node.users and node not in unread:
                self._graph.erase_node(node)
            else:
                kept.append(spec)
        users = [spec for spec in kept if spec.kind == InputKind.USER_INPUT]
        others = [spec for spec in kept if spec.kind != InputKind.USER_INPUT]
        new = [InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(n), n) for n in folded]
        specs = ExportGraphSignature([*others, *new, *users], list(signature.output_specs))
        root = self.program.graph_module
        program = rebuilt(self.program, self._graph, specs, root, folded)
        note(program, self.counts)
        return program


Rule = Callable[[Node, Folding], Node | None]
# The node itself stands for one that was changed in place.
_RULES: Mapping[str, Rule] = {"masks": masks.simpler, "scalars": scalars.as_tensor}


def _is_returned(node: Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _first_input(graph: Graph, program: ExportedProgram) -> Node:
    """Where constants end: the first input of the user, or the first op."""
    users = set(program.graph_signature.user_inputs)
    first: Node = next(n for n in graph.nodes if n.op != "placeholder" or n.name in users)
    return first
