"""A record of a program before a plugin sees it, to find out afterwards if it was changed."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.graph.nodes import graph_modules
from etdev.graph.weights import TensorWas
from etdev.upstream.trees import pytree

_NONE = object()
# torch.fx makes new arguments whenever one of them is changed.
_NodeWas = tuple[Node, str, Any, Any, Any, dict[str, Any]]


@frozen(eq=False)
class Snapshot:
    """All parts of a program that a plugin could change in place; takes linear time.

    Args:
        graphs: The nodes of its graph and of those of its branches.
        facts: Its signature and the delegates that it came with, by their names in a message.
        tensors: Its weights and example inputs, by name.
    """

    graphs: tuple[tuple[Graph, list[_NodeWas]], ...]
    facts: Mapping[str, list[Any]]
    tensors: Mapping[str, TensorWas]

    @classmethod
    def of(cls, program: ExportedProgram) -> Snapshot:
        """Record a program as it is now."""
        graphs = (module.graph for module in graph_modules(program.graph_module))
        return cls(
            tuple((graph, [_parts(node) for node in graph.nodes]) for graph in graphs),
            _facts(program),
            {name: TensorWas.of(value) for name, value in _tensors(program).items()},
        )

    def difference(self, program: ExportedProgram) -> str:
        """Return the first change of the program since, for a message; empty without one."""
        return next(self._differences(program), "")

    def _differences(self, program: ExportedProgram) -> Iterator[str]:
        graphs = [module.graph for module in graph_modules(program.graph_module)]
        if len(graphs) != len(self.graphs):
            yield "the branches"
        for graph, (before, nodes) in zip(graphs, self.graphs, strict=False):
            if graph is not before or len(graph.nodes) != len(nodes):
                yield "the graph"
            for was, node in zip(nodes, graph.nodes, strict=False):
                yield from _changes(was, _parts(node))
        tensors = _tensors(program)
        if tensors.keys() != self.tensors.keys():
            yield f"the state {min(tensors.keys() ^ self.tensors.keys())!r}"
        for name, tensor in self.tensors.items():
            if not tensor.is_still(tensors.get(name)):
                yield f"the values of {name!r}"
        facts = _facts(program)
        yield from (what for what, fact in self.facts.items() if facts[what] != fact)


def _parts(node: Node) -> _NodeWas:
    return node, node.name, node.target, node.args, node.kwargs, dict(node.meta)


def _changes(was: _NodeWas, now: _NodeWas) -> Iterator[str]:
    """Yield the changes of a node."""
    before, name, target, args, kwargs, meta = was
    if now[0] is not before or now[1] != name:
        yield f"the graph at {name!r}"
    if now[2] is not target and now[2] != target:
        yield f"the op of {name!r}"
    same = now[3] is args and now[4] is kwargs
    # Put back after a change, they are new ones of the same content.
    if not same and f"{now[3]} {now[4]}" != f"{args} {kwargs}":
        yield f"the arguments of {name!r}"
    # In the order of one dict, since a key that was removed and put back is the last.
    after = [now[5].get(key, _NONE) for key in meta]
    if len(meta) != len(now[5]) or not all(map(operator.is_, meta.values(), after)):
        keys = meta.keys() | now[5].keys()
        key = min(k for k in keys if meta.get(k, _NONE) is not now[5].get(k, _NONE))
        yield f"meta[{key!r}] of {name!r}"


def _facts(program: ExportedProgram) -> dict[str, list[Any]]:
    signature = program.graph_signature
    specs = (*signature.input_specs, *signature.output_specs)
    modules = program.graph_module.modules()
    delegates = [module for module in modules if isinstance(module, LoweredBackendModule)]
    return {
        "the signature": [(s.kind, getattr(s.arg, "name", None), s.target) for s in specs],
        "a delegate that the program came with": [
            (each.backend_id, each.processed_bytes, [(s.key, s.value) for s in each.compile_specs])
            for each in delegates
        ],
    }


def _tensors(program: ExportedProgram) -> dict[str, Any]:
    inputs = pytree.tree_leaves(program.example_inputs)
    examples = {f"example input {index}": value for index, value in enumerate(inputs)}
    return {**examples, **program.constants, **program.state_dict}
