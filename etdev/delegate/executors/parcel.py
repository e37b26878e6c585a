"""A call of a backend as bytes, from which another process makes the same call.

Python pickles the values. Nodes, ops and fake tensors, which it can't pickle, are described by
name and shape; weights travel apart, as the bytes of the storages that they lie in.
"""

from __future__ import annotations

import io
import operator
import pickle
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch import SymBool, SymFloat, SymInt, Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from etdev.delegate.cache.canonical import PROVENANCE
from etdev.delegate.compiler_calls import Call, Job
from etdev.delegate.split import unchecked
from etdev.errors import first_line
from etdev.graph.passes import InterpretedGraph
from etdev.graph.rebuild import extracted
from etdev.registry.plugin import Plugin
from etdev.schema.device import Device
from etdev.upstream.fake_tensors import FakeTensor, FakeTensorMode
from etdev.upstream.operators import edge_ops, overload_of

_KINDS = ("placeholder", "call_function", "output")
# The ops of ATen and of the edge dialect, by the class that they have.
_OPS = {"OpOverload": torch.ops, "EdgeOpOverload": edge_ops.edge}


class LocalOnly(Exception):
    """A call can't be compiled in another process as it is in this one; the text says why."""


@frozen
class Parcel:
    """A call that another process can make.

    Args:
        plugin: The plugin and the device, pickled.
        call: The backend and the programs, pickled without weights.
        weights: The bytes of each storage that weights lie in.
    """

    plugin: bytes
    call: bytes
    weights: tuple[np.ndarray[Any, Any], ...]


def pack(call: Call) -> Parcel:
    """Make a parcel of a call, or raise LocalOnly if a value can't be pickled or described."""
    plugin = call.plugin
    implementation: Any = plugin.implementation
    if isinstance(implementation, ModuleType):
        implementation = implementation.__name__
    made = plugin.name, implementation, plugin.distribution, plugin.version, plugin.limits
    try:
        head = pickle.dumps((made, call.first.device))
    except Exception as error:  # Whatever the objects of a plugin raise.
        raise LocalOnly(f"plugin {plugin.name}: {first_line(error)}") from error
    packer = _Packer()
    packer.add("the backend", (call.backend, call.together, len(call.jobs)))
    for job in call.jobs:
        packer.add_job(job)
    return Parcel(head, packer.file.getvalue(), tuple(packer.weights))


def unpack_plugin(parcel: Parcel) -> tuple[Plugin, Device]:
    """Return the plugin of a parcel, and the device that its call is for, or raise LocalOnly."""
    try:
        (name, implementation, *about), device = pickle.loads(parcel.plugin)
        if isinstance(implementation, str):
            implementation = import_module(implementation)
        return Plugin(name, implementation, *about), device
    except Exception as error:  # Whatever its modules raise when they are imported.
        raise LocalOnly(f"its plugin can't be made there: {first_line(error)}") from error


def unpack_call(parcel: Parcel, plugin: Plugin) -> Call:
    """Return the call of a parcel, inside the context of its plugin, or raise LocalOnly."""
    unpacker = _Unpacker(parcel)
    try:
        backend, together, count = unpacker.load()
        return Call(backend, tuple(unpacker.job() for _ in range(count)), together, plugin)
    except Exception as error:  # Whatever is missing here: a module, an op, another version.
        raise LocalOnly(f"its program can't be made there: {first_line(error)}") from error


class _Packer(pickle.Pickler):
    def __init__(self) -> None:
        self.file = io.BytesIO()
        super().__init__(self.file, pickle.HIGHEST_PROTOCOL)
        self.weights: list[np.ndarray[Any, Any]] = []
        self._places: dict[tuple[int, int], int] = {}
        self._numbers: dict[Node, int] = {}

    def add(self, who: str, value: object) -> None:
        """Pickle a value that belongs to `who`."""
        try:
            self.dump(value)
        except Exception as error:  # Whatever the values in a program raise.
            why = str(error) if isinstance(error, LocalOnly) else first_line(error)
            raise LocalOnly(f"{who} {why}") from error

    def add_job(self, job: Job) -> None:
        """Pickle a partition and its program, a node at a time."""
        program, self._numbers = job.program, {}
        nodes, signature = list(program.graph.nodes), program.graph_signature
        self.add("the plan", (job.partition, signature.input_specs, signature.output_specs))
        for weights in (program.state_dict, program.constants):
            self.add("weights", len(weights))
            for item in weights.items():
                self.add(f"the weight {item[0]}", item)
        self.add("nodes", len(nodes))
        for node in nodes:
            if node.op not in _KINDS:
                raise LocalOnly(f"{node.name} reads a graph or a value inside the program")
            meta = {key: value for key, value in node.meta.items() if key not in PROVENANCE}
            self.add(node.name, (node.op, node.name, node.target, node.args, node.kwargs, meta))
            self._numbers[node] = len(self._numbers)

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        """Describe a value that can't be pickled; return None for any other."""
        if isinstance(value, Node):
            return "node", self._numbers[value]
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, (SymInt, SymFloat, SymBool)):
            raise LocalOnly("has a dynamic size, which means nothing in another process")
        kind = type(value).__name__
        return ("op", kind, str(overload_of(value))) if kind in _OPS else None

    def _tensor(self, value: Tensor) -> tuple[Any, ...]:
        if value.layout != torch.strided or value.is_conj() or value.is_neg():
            raise LocalOnly(f"is a {value.layout} tensor, or a view that conjugates or negates")
        geometry = tuple(value.shape), value.stride(), value.storage_offset()
        about = value.dtype, value.requires_grad, geometry
        if type(value) is FakeTensor:
            return "fake", value.device, *about
        plain = type(value) in (Tensor, torch.nn.Parameter) and not value.is_quantized
        if not plain or value.device.type != "cpu":
            raise LocalOnly(f"is a {type(value).__name__} of {value.dtype} on {value.device}")
        storage = value.untyped_storage()
        place = storage.data_ptr(), storage.nbytes()
        if place not in self._places:
            self._places[place] = len(self.weights)
            self.weights.append(torch.empty(0, dtype=torch.uint8).set_(storage).numpy())
        parameter = isinstance(value, torch.nn.Parameter)
        return "weight", self._places[place], parameter, *about


class _Unpacker(pickle.Unpickler):
    def __init__(self, parcel: Parcel) -> None:
        super().__init__(io.BytesIO(parcel.call))
        # Copies, since backends may write to weights.
        self._storages = [torch.tensor(weight).untyped_storage() for weight in parcel.weights]
        self._nodes: list[Node] = []
        self._mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())

    def job(self) -> Job:
        """Return the next partition with its program."""
        partition, inputs, outputs = self.load()
        empty, graph, self._nodes = Graph(), InterpretedGraph(), []
        empty.output(())
        none = ExportGraphSignature([], [])
        weights, constants = self._weights(), self._weights()
        owner = ExportedProgram({}, empty, none, weights, {}, [], constants=constants)
        for _ in range(self.load()):
            op, name, target, args, kwargs, meta = self.load()
            node = graph.create_node(op, target, args, kwargs, name)
            # torch changes names that Python has functions of, such as `input`.
            node.name, node.meta = name, meta
            self._nodes.append(node)
        signature = ExportGraphSignature(inputs, outputs)
        return Job(partition, extracted(owner, graph, signature, {}, unchecked()))

    def _weights(self) -> dict[str, Any]:
        return dict(self.load() for _ in range(self.load()))

    def persistent_load(self, described: Any) -> Any:
        """Return the value that `persistent_id` described."""
        kind, *about = described
        return getattr(self, f"_{kind}")(*about)

    def _node(self, number: int) -> Node:
        return self._nodes[number]

    def _op(self, kind: str, name: str) -> Any:
        return operator.attrgetter(name)(_OPS[kind])

    def _fake(self, device: torch.device, dtype: torch.dtype, grad: bool, geometry: Any) -> Tensor:
        shape, stride, offset = geometry
        with self._mode:
            if not offset:
                value = torch.empty_strided(shape, stride, dtype=dtype, device=device)
            else:
                size = offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
                whole = torch.empty(size, dtype=dtype, device=device)
                value = whole.as_strided(shape, stride, offset)
        return value.requires_grad_(grad)

    def _weight(
        self, place: int, parameter: bool, dtype: torch.dtype, grad: bool, geometry: Any
    ) -> Tensor:
        shape, stride, offset = geometry
        value = torch.empty(0, dtype=dtype).set_(self._storages[place], offset, shape, stride)
        return torch.nn.Parameter(value, grad) if parameter else value.requires_grad_(grad)
