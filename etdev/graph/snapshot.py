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
from etdev.graph.tensor_state import TensorWas
from etdev.upstream.trees import pytree

_NONE = object()


@frozen(eq=False)
class Snapshot:
    """All parts of a program that a plugin could change in place; takes linear time.

    Args:
        graphs: The nodes of its graph and of those of its branches.
        delegates: The contents of the delegates that it came with.
        signature: Its inputs and outputs.
        tensors: Its weights and example inputs, by name.
    """

    graphs: tuple[tuple[Graph, tuple[_NodeWas, ...]], ...]
    delegates: tuple[tuple[Any, ...], ...]
    signature: tuple[tuple[Any, ...], ...]
    tensors: Mapping[str, TensorWas]

    @classmethod
    def of(cls, program: ExportedProgram) -> Snapshot:
        """Record a program as it is now."""
        graphs = (module.graph for module in graph_modules(program.graph_module))
        return cls(
            tuple((graph, tuple(map(_NodeWas.of, graph.nodes))) for graph in graphs),
            _delegates(program),
            _signature(program),
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
            for node, was in zip(graph.nodes, nodes, strict=False):
                yield from was.differences(node)
        tensors = _tensors(program)
        if tensors.keys() != self.tensors.keys():
            yield f"the state {min(tensors.keys() ^ self.tensors.keys())!r}"
        for name, was_tensor in self.tensors.items():
            if not was_tensor.is_still(tensors.get(name)):
                yield f"the values of {name!r}"
        if _signature(program) != self.signature:
            yield "the signature"
        if _delegates(program) != self.delegates:
            yield "a delegate that the program came with"


@frozen(eq=False)
class _NodeWas:
    """A node as it was. torch.fx makes new arguments whenever one of them is changed."""

    node: Node
    name: str
    target: Any
    args: Any
    kwargs: Any
    meta: Mapping[str, Any]

    @classmethod
    def of(cls, node: Node) -> _NodeWas:
        return cls(node, node.name, node.target, node.args, node.kwargs, dict(node.meta))

    def differences(self, node: Node) -> Iterator[str]:
        if node is not self.node or node.name != self.name:
            yield f"the graph at {self.name!r}"
        if node.target is not self.target and node.target != self.target:
            yield f"the op of {self.name!r}"
        same = node.args is self.args and node.kwargs is self.kwargs
        # Put back after a change, they are new ones of the same content.
        if not same and f"{node.args} {node.kwargs}" != f"{self.args} {self.kwargs}":
            yield f"the arguments of {self.name!r}"
        if not _same_meta(self.meta, node.meta):
            keys = self.meta.keys() | node.meta.keys()
            key = min(k for k in keys if self.meta.get(k, _NONE) is not node.meta.get(k, _NONE))
            yield f"meta[{key!r}] of {self.name!r}"


def _same_meta(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if before.keys() != after.keys():
        return False
    # In the order of one dict, since a key that was removed and put back is the last.
    return all(map(operator.is_, before.values(), map(after.__getitem__, before)))


def _delegates(program: ExportedProgram) -> tuple[tuple[Any, ...], ...]:
    return tuple(
        (
            module.backend_id,
            module.processed_bytes,
            [(s.key, s.value) for s in module.compile_specs],
        )
        for module in program.graph_module.modules()
        if isinstance(module, LoweredBackendModule)
    )


def _signature(program: ExportedProgram) -> tuple[tuple[Any, ...], ...]:
    signature = program.graph_signature
    specs = (*signature.input_specs, *signature.output_specs)
    return tuple((s.kind, getattr(s.arg, "name", None), s.target) for s in specs)


def _tensors(program: ExportedProgram) -> dict[str, Any]:
    inputs = pytree.tree_leaves(program.example_inputs)
    examples = {f"example input {index}": value for index, value in enumerate(inputs)}
    return {**examples, **program.constants, **program.state_dict}
