"""A record of a program or its weights, to find out afterwards if anything was changed."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from attrs import field, frozen
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import LoweringError
from etdev.graph.nodes import graph_modules
from etdev.graph.signature import unwritten_constants
from etdev.schema.plan import MethodPlan, Plan
from etdev.upstream.fake_tensors import write_count
from etdev.upstream.trees import pytree

# Number of places of a tensor whose bytes are compared.
_SAMPLES = 16
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_NONE = object()


@frozen
class TensorWas:
    """A tensor as it was; any other object, such as an engine, counts by its identity.

    torch counts writes in place, but not those through `.data` or NumPy. Samples of the bytes show
    these, unless only few places are written.
    """

    value: Any = field(eq=id)
    count: int | None
    sample: bytes

    @classmethod
    def of(cls, value: Any) -> TensorWas:
        """Record a tensor as it is now."""
        count = write_count(value) if isinstance(value, torch.Tensor) else None
        return cls(value, count, _sample(value))


def _sample(value: Any) -> bytes:
    """Return bytes of a tensor in host memory, from places that are spread over it."""
    plain = type(value) in _PLAIN and value.device.type == "cpu" and not value.is_quantized
    if not plain or value.layout != torch.strided or not value.numel() or value.is_conj():
        return b""
    tensor = value.detach()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in steps)
    count = min(extent, _SAMPLES)
    places = tensor.as_strided((count,), (extent // count,), tensor.storage_offset())
    return bytes(places.clone().view(torch.uint8).numpy())


@frozen(eq=False)
class Snapshot:
    """All parts of a program that a plugin could change in place; takes linear time.

    Args:
        facts: Its graphs with those of its branches, its signature, and the delegates that it came
            with, by their names in a message.
        nodes: Each node with its op, arguments and metadata.
        tensors: Its weights and example inputs, by name.
    """

    facts: Mapping[str, list[Any]]
    nodes: list[tuple[Node, Any, Any, dict[str, Any]]]
    tensors: Mapping[str, TensorWas]

    @classmethod
    def of(cls, program: ExportedProgram) -> Snapshot:
        """Record a program as it is now."""
        modules = list(program.graph_module.modules())
        graphs = [module.graph for module in graph_modules(program.graph_module)]
        nodes = [node for graph in graphs for node in graph.nodes]
        signature = program.graph_signature
        specs = (*signature.input_specs, *signature.output_specs)
        examples = enumerate(pytree.tree_leaves(program.example_inputs))
        tensors = {f"example input {index}": value for index, value in examples}
        tensors |= {**program.constants, **program.state_dict}
        facts: dict[str, list[Any]] = {
            "the graph": [graphs, [(node, node.name) for node in nodes]],
            "the signature": [(s.kind, getattr(s.arg, "name", None), s.target) for s in specs],
            "a delegate that the program came with": [
                (m.backend_id, m.processed_bytes, [(s.key, s.value) for s in m.compile_specs])
                for m in modules
                if isinstance(m, LoweredBackendModule)
            ],
        }
        parts = [(n, n.target, (n.args, n.kwargs), dict(n.meta)) for n in nodes]
        return cls(facts, parts, {name: TensorWas.of(value) for name, value in tensors.items()})

    def difference(self, program: ExportedProgram) -> str:
        """Return the first change of the program since, for a message; empty without one."""
        return next(self._differences(Snapshot.of(program)), "")

    def _differences(self, now: Snapshot) -> Iterator[str]:
        yield from (what for what, fact in self.facts.items() if now.facts[what] != fact)
        for (node, op, args, meta), (_, new_op, new_args, new_meta) in zip(
            self.nodes, now.nodes, strict=True
        ):
            if new_op is not op and new_op != op:
                yield f"the op of {node.name!r}"
            # torch.fx makes new arguments whenever one of them is changed, and changed back.
            same = all(map(operator.is_, new_args, args))
            if not same and f"{new_args}" != f"{args}":
                yield f"the arguments of {node.name!r}"
            keys = meta.keys() | new_meta.keys()
            if other := [k for k in keys if meta.get(k, _NONE) is not new_meta.get(k, _NONE)]:
                yield f"meta[{min(other)!r}] of {node.name!r}"
        if names := now.tensors.keys() ^ self.tensors.keys():
            yield f"the state {min(names)!r}"
        for name, tensor in self.tensors.items():
            if now.tensors[name] != tensor:
                yield f"the values of {name!r}"


@frozen(eq=False)
class Weights:
    """The weights outside of delegates, which a .pte takes from the model when it is emitted."""

    # As they were when the delegates were compiled, by method and name in the state dict.
    tensors: Mapping[tuple[str, str], TensorWas]

    @classmethod
    def of(cls, programs: Mapping[str, ExportedProgram], plan: Plan) -> Weights:
        """Record the weights of the edge-dialect programs that a plan is for."""
        tensors = {}
        for method, program in programs.items():
            values = {**program.constants, **program.state_dict}
            for target in _outside(program, plan[method]):
                tensors[method, target] = TensorWas.of(values[target])
        return cls(tensors)

    def refuse_changes(self) -> None:
        """Refuse to emit weights that were changed since delegates took theirs."""
        for (method, target), was in self.tensors.items():
            if TensorWas.of(was.value) != was:
                raise LoweringError(
                    method,
                    f"{target!r} was changed after the model was lowered",
                    "lower it again, or change a copy of the model",
                )


def _outside(program: ExportedProgram, plan: MethodPlan) -> Iterator[str]:
    """Yield the targets of the weights that are read outside of delegates that hold them."""
    inside: dict[str, set[str]] = {}
    for partition in plan.partitions:
        for constant in partition.constants:
            if constant.inside:
                inside.setdefault(constant.name, set()).update(partition.nodes)
    targets = unwritten_constants(program)
    for node in program.graph.find_nodes(op="placeholder"):
        readers = {user.name for user in node.users}
        if node.name in targets and readers - inside.get(node.name, set()):
            yield targets[node.name]
