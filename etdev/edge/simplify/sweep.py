"""Removal of redundant work from a graph, in one pass over its nodes."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.edge.simplify import rewrites
from etdev.edge.simplify.folding import (
    Folding,
    Simpler,
    is_part,
    is_plain,
    is_quantiser,
    is_random,
)
from etdev.graph.nodes import CALLS, NO_CALL
from etdev.graph.rebuild import copy_graph, note_simplified, rebuilt, simplified_in
from etdev.graph.signature import constant_values, first_input, unwritten_constants


class Sweep:
    """Simplifies an edge-dialect program without delegates, which is not changed.

    With `pieces` it is the pieces of an op, whose results the rest of a method reads. With `only`
    these nodes alone are simplified.
    """

    def __init__(
        self, program: ExportedProgram, pieces: bool, only: Collection[str] | None
    ) -> None:
        self.program, self.pieces, self.only = program, pieces, only
        # Why a node was removed or changed, by its name.
        self._kinds: dict[str, str] = {}
        self._known: dict[Any, Node] = {}
        self._graph = copy_graph(program.graph)
        # The inputs that the method never writes, and the buffers that it does.
        self._constants = unwritten_constants(program)
        self._written = program.graph_signature.inputs_to_buffers.keys() - self._constants.keys()
        self._folding = Folding(self._graph, constant_values(program))

    def simplified(self) -> ExportedProgram:
        """Return the program without redundant work; the same object if nothing changes."""
        unread = {n for n in self._graph.nodes if n.op != "output" and not n.users}
        for node in list(self._graph.nodes):
            if self.only is not None and node.name not in self.only:
                continue
            if is_plain(node) and isinstance(node.meta["val"], torch.Tensor):
                self._try(node)
            elif is_plain(node) or is_part(node) or is_quantiser(node):
                self._folding.evaluate(node)
        self._keep_old_values()
        self._folding.place(first_input(self._graph, self.program))
        self._remove_unused(unread)
        if not self._kinds:
            return self.program
        self._forget_calls()
        # Constants that are not read any more go, too.
        for node in self._graph.find_nodes(op="placeholder"):
            if node.name in self._constants and not node.users and node not in unread:
                self._graph.erase_node(node)
        program = rebuilt(self.program, self._graph, constants=self._folding.placed)
        note_simplified(program, simplified_in(self.program) + Counter(self._kinds.values()))
        return program

    def _keep_old_values(self) -> None:
        """Remove self-copies; the buffer itself then is the mutation output."""
        signature, output = self.program.graph_signature, self._graph.output_node()
        results: Any = list(output.args[0])  # type: ignore[arg-type]
        for index, spec in enumerate(signature.output_specs):
            if not spec.target:
                continue
            new = old = results[index]
            while old.op == "call_function" and (source := rewrites.copied(old, self._folding)):
                old = source
            if old is not new and signature.inputs_to_buffers.get(old.name) == spec.target:
                results[index] = old
                self._kinds[new.name] = "copies"
        output.args = (tuple(results),)

    def _try(self, node: Node) -> None:
        if not node.users:
            return
        for kind, rule in _RULES:
            simpler = rule(node, self._folding)
            if simpler is node:
                return
            if isinstance(simpler, Node):
                if simpler.name not in self._written and self._replace(node, simpler, kind):
                    return
            elif simpler:
                self._kinds[node.name] = kind
                node.target, node.args = simpler
        self._share(node)

    def _replace(self, node: Node, source: Node, kind: str) -> bool:
        """Replace a node by another one; return True if that is possible."""
        # A result of a method stays a tensor of its own.
        own = self.pieces and source.op == "call_function" and not _is_returned(source)
        if _is_returned(node) and not own:
            return False
        self._kinds[node.name] = kind
        node.replace_all_uses_with(source)
        # Erased at once, since rules count the users of its inputs.
        self._graph.erase_node(node)
        return True

    def _share(self, node: Node) -> None:
        """Replace a node by an earlier one that computes the same."""
        if is_random(node):
            return
        key = (node.target, *map(self._frozen, (node.args, sorted(node.kwargs.items()))))
        try:
            first = self._known.setdefault(key, node)
        except TypeError:  # An argument without a hash, such as a symbolic size.
            return
        if first is not node:
            self._replace(node, first, "duplicates")

    def _frozen(self, value: object) -> object:
        if isinstance(value, (list, tuple)):
            return tuple(map(self._frozen, value))
        if isinstance(value, Node):
            return self._folding.identity(value)
        # 1 and True and 1.0 are equal, and 0.0 and -0.0.
        return (type(value), repr(value)) if isinstance(value, (bool, int, float)) else value

    def _remove_unused(self, unread: set[Node]) -> None:
        """Remove unread nodes, the last ones first, so that their inputs are removed, too.

        Of nodes that were unread to begin with only plain ops go.
        """
        for node in reversed(list(self._graph.nodes)):
            if node.users:
                continue
            if is_plain(node) or is_quantiser(node):
                constant = self._folding.value(node) is not None and node not in unread
                self._kinds[node.name] = "constants" if constant else "unused"
            elif node.target is not operator.getitem or node in unread:
                continue
            self._graph.erase_node(node)

    def _forget_calls(self) -> None:
        """Detach nodes with changed neighbours from the call that they come from.

        Backends that match all nodes of a `linear` call would take the rest of them for a layer.
        """
        before = {node.name: _neighbours(node) for node in self.program.graph.nodes}
        for node in self._graph.nodes:
            if node.op == "call_function" and before.get(node.name) != _neighbours(node):
                node.meta = {**node.meta, CALLS: NO_CALL}


# A rule returns a node to read in place of another, the node itself if no other rule should see it,
# a simpler op and its arguments, or None.
Rule = Callable[[Node, Folding], Simpler | None]
_RULES: tuple[tuple[str, Rule], ...] = (
    # A copy of a constant is that constant, not another one.
    ("copies", rewrites.source_of),
    ("constants", lambda node, folding: node if folding.evaluate(node) else None),
    ("copies", rewrites.reshaped),
    ("copies", rewrites.merged),
    ("copies", rewrites.source_of),
    ("masks", rewrites.mask),
    ("scalars", rewrites.as_tensor),
)


def _neighbours(node: Node) -> tuple[object, ...]:
    sources = [source.name for source in node.all_input_nodes]
    return node.target, sources, {user.name for user in node.users}


def _is_returned(node: Node) -> bool:
    return any(user.op == "output" for user in node.users)


def simplified(
    program: ExportedProgram, pieces: bool = False, only: Collection[str] | None = None
) -> ExportedProgram:
    """Return an edge-dialect program, or the pieces of an op, without redundant work."""
    return Sweep(program, pieces, only).simplified()
