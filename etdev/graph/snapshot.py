"""A record of a program or its weights, to find out afterwards if anything was changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from attrs import field, frozen
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import LoweringError
from etdev.graph.nodes import graph_modules
from etdev.graph.signature import unwritten_constants
from etdev.upstream.fake_tensors import write_count

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
    """The parts of a program that a plugin may change in place by mistake; takes linear time."""

    # Its graphs, with those of its branches, and their nodes with their names.
    graphs: list[Any]
    # The kind, name and target of each input and output.
    signature: list[Any]
    # Each node with its op, arguments and metadata.
    nodes: list[tuple[Node, Any, dict[str, Any]]]
    # Its weights, by name.
    tensors: Mapping[str, TensorWas]

    @classmethod
    def of(cls, program: ExportedProgram) -> Snapshot:
        """Record a program as it is now."""
        graphs = [module.graph for module in graph_modules(program.graph_module)]
        nodes = [node for graph in graphs for node in graph.nodes]
        signature = program.graph_signature
        specs = (*signature.input_specs, *signature.output_specs)
        tensors = {**program.constants, **program.state_dict}
        return cls(
            [graphs, [(node, node.name) for node in nodes]],
            [(spec.kind, getattr(spec.arg, "name", None), spec.target) for spec in specs],
            [(node, (node.target, node.args, node.kwargs), dict(node.meta)) for node in nodes],
            {name: TensorWas.of(value) for name, value in tensors.items()},
        )

    def difference(self, program: ExportedProgram) -> str:
        """Return the first change of the program since, for a message; empty without one."""
        now = Snapshot.of(program)
        if now.graphs != self.graphs:
            return "the graph"
        if now.signature != self.signature:
            return "the signature"
        for (node, call, meta), (_, new_call, new_meta) in zip(self.nodes, now.nodes, strict=True):
            if new_call != call:
                return f"the op or the arguments of {node.name!r}"
            keys = meta.keys() | new_meta.keys()
            if other := [k for k in keys if meta.get(k, _NONE) is not new_meta.get(k, _NONE)]:
                return f"meta[{min(other)!r}] of {node.name!r}"
        if names := now.tensors.keys() ^ self.tensors.keys():
            return f"the state {min(names)!r}"
        for name, tensor in self.tensors.items():
            if now.tensors[name] != tensor:
                return f"the values of {name!r}"
        return ""


@frozen(eq=False)
class Weights:
    """The weights of a model, which a .pte takes in part when delegates are compiled."""

    # As they were when the delegates were compiled, by method and name in the state dict.
    tensors: Mapping[tuple[str, str], TensorWas]

    @classmethod
    def of(cls, programs: Mapping[str, ExportedProgram]) -> Weights:
        """Record the weights of some methods, but for those that they write."""
        tensors = {}
        for method, program in programs.items():
            values = {**program.constants, **program.state_dict}
            for target in unwritten_constants(program).values():
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
