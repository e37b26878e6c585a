"""A call of a backend as bytes, from which another process makes the same call.

torch saves values and weights. Plugins, nodes, ops and fake tensors, which it can't save, are made
again from what they were made of.
"""

from __future__ import annotations

import io
import operator
import pickle
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from attrs import evolve
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_symbols

from etdev.delegate.cache.canonical import PROVENANCE
from etdev.delegate.compiler_calls import Call
from etdev.delegate.split import unchecked
from etdev.errors import first_line
from etdev.graph.rebuild import extracted
from etdev.registry.plugin import Plugin
from etdev.schema.device import Device
from etdev.upstream.fake_tensors import FakeTensor, FakeTensorMode
from etdev.upstream.operators import EdgeOpOverload, OpOverload, edge_ops, overload_of
from etdev.upstream.shortcuts.graphs import interpreted_graph

_KINDS = ("placeholder", "call_function", "output")


class LocalOnly(Exception):
    """A call can't be compiled in another process as it is in this one; the text says why."""


def pack(call: Call) -> tuple[bytes, bytes]:
    """Return the plugin of a call with its device, and the call without its plugin.

    Raises:
        LocalOnly: A value can't be saved or made again.
    """
    what = f"plugin {call.plugin.name}"
    try:
        plugin = _saved((call.plugin, call.first.device))
        what = "its program"
        jobs = tuple(evolve(job, split=None) for job in call.jobs)
        return plugin, _saved((call.backend, jobs, call.together))
    except LocalOnly:
        raise
    except Exception as error:  # Whatever the objects of a plugin or a program raise.
        raise LocalOnly(f"{what}: {first_line(error)}") from error


def unpack_plugin(data: bytes) -> tuple[Plugin, Device]:
    """Return a plugin that was packed, and the device of its call, or raise LocalOnly."""
    plugin, device = _loaded("its plugin", data)
    return plugin, device


def unpack_call(data: bytes, plugin: Plugin) -> Call:
    """Return a call that was packed, inside the context of its plugin, or raise LocalOnly."""
    backend, jobs, together = _loaded("its program", data)
    return Call(backend, jobs, together, plugin)


def _saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, SimpleNamespace(__name__=__name__, Pickler=_Pickler))
    return file.getvalue()


def _loaded(what: str, data: bytes) -> Any:
    try:
        return torch.load(io.BytesIO(data), weights_only=False)
    except Exception as error:  # Whatever is missing here: a module, an op, another version.
        raise LocalOnly(f"{what} can't be made there: {first_line(error)}") from error


class _Pickler(pickle.Pickler):
    """Pickles values together with the functions below, which make them again."""

    def reducer_override(self, value: Any) -> Any:
        """Return how a value is made again; NotImplemented for Python's or torch's own way."""
        if isinstance(value, ModuleType):
            return import_module, (value.__name__,)
        if isinstance(value, Plugin):
            made = value.name, value.implementation, value.distribution, value.version, value.limits
            return Plugin, made
        if isinstance(value, ExportedProgram):
            weights = value.state_dict, value.constants
            return _program, (_nodes(value.graph), value.graph_signature, *weights)
        if isinstance(value, Node):
            meta = {key: each for key, each in value.meta.items() if key not in PROVENANCE}
            call = value.op, value.target, value.args, value.kwargs, value.name
            return _node, (value.graph, call, meta)
        if isinstance(value, Graph):
            return interpreted_graph, ()
        if isinstance(value, (OpOverload, EdgeOpOverload)):
            return _op, (isinstance(value, EdgeOpOverload), str(overload_of(value)))
        if isinstance(value, FakeTensor):
            place = tuple(value.shape), value.stride(), value.storage_offset()
            return _fake, (value.fake_mode, place, value.dtype, value.device, value.requires_grad)
        return (_mode, ()) if isinstance(value, FakeTensorMode) else NotImplemented


def _nodes(graph: Graph) -> list[Node]:
    for node in graph.nodes:
        if node.op not in _KINDS:
            raise LocalOnly(f"{node.name} reads a graph or a value inside the program")
        if free_symbols(node.meta.get("val")):
            what = "has a dynamic size, which means nothing in another process"
            raise LocalOnly(f"{node.name} {what}")
    return list(graph.nodes)


def _program(
    nodes: Sequence[Node],
    signature: ExportGraphSignature,
    weights: dict[str, Any],
    constants: dict[str, Any],
) -> ExportedProgram:
    empty, none = Graph(), ExportGraphSignature([], [])
    empty.output(())
    owner = ExportedProgram({}, empty, none, weights, {}, [], constants=constants)
    return extracted(owner, nodes[0].graph, signature, {}, unchecked())


def _node(graph: Graph, call: tuple[Any, ...], meta: dict[str, Any]) -> Node:
    node = graph.create_node(*call)
    # torch changes names that Python has functions of, such as `input`.
    node.name, node.meta = call[-1], meta
    return node


def _op(edge: bool, name: str) -> Any:
    return operator.attrgetter(name)(edge_ops.edge if edge else torch.ops)


def _mode() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


def _fake(
    mode: FakeTensorMode,
    place: tuple[Sequence[int], Sequence[int], int],
    dtype: torch.dtype,
    device: torch.device,
    grad: bool,
) -> Tensor:
    shape, stride, offset = place
    with mode:
        if offset:
            size = offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
            value = torch.empty(size, dtype=dtype, device=device).as_strided(shape, stride, offset)
        else:
            value = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    return value.requires_grad_(grad)
