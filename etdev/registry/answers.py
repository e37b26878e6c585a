"""One typed function per hook, which asks the plugin and checks its answer.

A fault raises PluginError or ClaimError with the plugin's name. Only functions that are given a
program import torch, since `etdev plugins` asks for probes through this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import evolve

from etdev.errors import ClaimError, PluginError, first_line
from etdev.registry.calls import call, call_for_items, fault, guarded

# A context is entered and left, not checked.
from etdev.registry.calls import compile_context as compile_context
from etdev.registry.plugin import Plugin
from etdev.schema.claims import Claim, KeepWhole
from etdev.schema.device import Device, Probe
from etdev.schema.dtypes import HALVES
from etdev.schema.outcomes import Bypass
from etdev.schema.partition import Assumed, Draft, Partition
from etdev.schema.quirk import Quirk, Row
from etdev.schema.tensors import Constant

if TYPE_CHECKING:
    from executorch.exir import EdgeCompileConfig
    from torch.export import ExportedProgram
    from torch.fx import Node

    from etdev.graph.method import MethodGraph

# Keys of `node.meta` that ExecuTorch and the host rely on.
HOST_META = {"val", "tensor_meta", "spec", "debug_handle", "delegation_tag"}
# Additions to `node.meta`, by the name of the node.
Annotations = Mapping[str, Mapping[str, Any]]


def quirks(plugin: Plugin) -> tuple[Row, ...]:
    """Return the faults that the plugin adds to the table."""
    return call_for_items(plugin, "quirks", Quirk, "return a list of Quirks")


def prepare(plugin: Plugin, program: ExportedProgram, method: str) -> ExportedProgram:
    """Return the program as the plugin rewrites it, or as it is."""
    from torch.export import ExportedProgram

    from etdev.registry.snapshot import interface_change, name_inputs

    cure = "return an ExportedProgram"
    rewritten: ExportedProgram | None = call(
        plugin, "prepare", ExportedProgram, cure, program=program, method=method
    )
    if rewritten is None:
        return program
    name_inputs(rewritten)
    try:
        rewritten.validate()  # type: ignore[no-untyped-call]
    except Exception as error:
        # Tensors in attributes, such as engines that a compiler built, become constants later.
        if "Invalid get_attr type" not in str(error):
            what = f"prepare returned an invalid program for method {method!r}: {first_line(error)}"
            raise PluginError(plugin.name, what, "change nodes and signature together") from error
    if change := interface_change(program, rewritten):
        cure = "return a program that takes and returns the same"
        raise PluginError(plugin.name, f"prepare changed the {change} of method {method!r}", cure)
    return rewritten


def keep_whole(plugin: Plugin, program: ExportedProgram, method: str) -> KeepWhole | None:
    """Return the ATen ops that the plugin wants to see whole; None for none."""
    from etdev.upstream.operators import OpOverload

    request: KeepWhole | None = call(
        plugin, "keep_whole", KeepWhole, "return KeepWhole", program=program, method=method
    )
    if request is None:
        return None
    for op in (*request.ops, *request.decomposes):
        if not isinstance(op, OpOverload):
            raise fault(plugin, "keep_whole", op, "name ops such as torch.ops.aten.mm.default")
    if (when := request.when) is None:
        return request

    def check(node: Node) -> bool:
        with _reading(plugin, f"keep_whole's check of {node.name!r}", node, method):
            return bool(when(node))

    return evolve(request, when=check)


@contextmanager
def _reading(plugin: Plugin, what: str, node: Node, method: str = "") -> Iterator[None]:
    """Guard a call of the plugin that looks at one node, and refuse a change of its meta."""
    before = dict(node.meta)
    with guarded(plugin, what, method):
        yield
    if node.meta.keys() != before.keys() or any(node.meta[k] is not before[k] for k in before):
        node.meta = before
        place = f" in method {method!r}" if method else ""
        text = f"{what} changed its meta{place}"
        raise PluginError(plugin.name, text, "look at the node, don't change it")


def decompose(
    plugins: Sequence[Plugin], node: Node, config: EdgeCompileConfig
) -> Callable[..., Any] | None:
    """Return how an op is written in other ops, from the first plugin that has an answer."""
    for plugin in plugins:
        # Not by `call`, which takes a snapshot: this is asked about many nodes.
        if "decompose" not in plugin.hooks:
            continue
        with _reading(plugin, f"decompose of {node.name!r}", node):
            given = plugin.manager.hook.decompose(node=node, config=config)
        for pieces in given[:1]:
            if not callable(pieces):
                raise fault(plugin, "decompose", pieces, "return a function, or None")
            return pieces  # type: ignore[no-any-return]
    return None


def claim_nodes(
    plugin: Plugin,
    graph: MethodGraph,
    taken: Mapping[str, str],
    partitions: Mapping[str, str],
    config: EdgeCompileConfig,
) -> tuple[Claim, ...]:
    """Return the plugin's claims on a method; the planner checks their nodes."""
    return call_for_items(
        plugin,
        "claim_nodes",
        Claim,
        "return a Claim or several",
        program=graph.program,
        method=graph.method,
        # The tables are the host's own.
        taken=MappingProxyType(taken),
        partitions=MappingProxyType(partitions),
        config=config,
    )


def claim_constants(plugin: Plugin, program: ExportedProgram, draft: Draft) -> frozenset[str]:
    """Return the names of the constants that travel inside the delegate."""
    hook, cure = "claim_constants", "return a list of constants"
    given = {"program": program, "partition": draft}
    constants = call_for_items(plugin, hook, str | Constant, cure, **given)
    names = {item.name if isinstance(item, Constant) else item for item in constants}
    readable = {constant.name: constant for constant in draft.constants}
    for name in sorted(names):
        if name not in readable:
            what = f"claims the constant {name!r}, which {draft.where} does not read"
            raise ClaimError(plugin.name, what, "choose from partition.constants")
        if not draft.may_hold(readable[name]):
            what = f"would freeze the buffer {readable[name].target!r} in {draft.where}, but the"
            what += " method writes to it"
            raise ClaimError(plugin.name, what, "leave out constants that are mutated")
    return frozenset(names)


def resolve_device(
    plugin: Plugin, program: ExportedProgram, partition: Partition
) -> Device | Assumed | None:
    """Return where the plugin says a partition runs; None for the default."""
    hook, cure = "resolve_device", 'return a Device, such as Device("cuda", 0)'
    answer: Device | Assumed | None = call(
        plugin, hook, Device | Assumed, cure, program=program, partition=partition
    )
    return answer


def device_caveat(plugin: Plugin, program: ExportedProgram, partition: Partition) -> str:
    """Return why a partition may not run where it was put; empty if it will."""
    cure, given = "return a line of text, or None", {"program": program, "partition": partition}
    answer: str = call(plugin, "device_caveat", str, cure, **given) or ""
    if not answer.isprintable():
        raise fault(plugin, "device_caveat", answer, cure, partition)
    return answer


def annotate(plugin: Plugin, partition: Partition) -> Annotations:
    """Return additions to `node.meta` for the compiler of a partition; empty for none."""
    cure = 'return a mapping, such as {"aten_add_tensor": {"key": 1}}'
    answer: Annotations = call(plugin, "annotate", Mapping, cure, partition=partition) or {}
    if not all(isinstance(meta, Mapping) for meta in answer.values()):
        raise fault(plugin, "annotate", answer, cure, partition)
    for name, meta in answer.items():
        if taken := sorted(HOST_META & meta.keys()):
            what = f"annotate overwrites meta[{taken[0]!r}] of {name!r} in {partition.where}"
            raise PluginError(plugin.name, what, "the host writes it; use a key of its own")
    constants = (constant.name for constant in partition.constants)
    known = {*partition.nodes, *constants, *(tensor.name for tensor in partition.inputs)}
    if strange := answer.keys() - known:
        what = f"annotate names {min(map(str, strange))!r}, which is not in {partition.where}"
        raise PluginError(plugin.name, what, "name its nodes, inputs or constants")
    return answer


def cache_key(plugin: Plugin, partition: Partition) -> Mapping[str, str] | Bypass | None:
    """Return what else the compiled bytes of a partition depend on, or why they can't be kept."""
    hook, cure = "cache_key", 'return a mapping of text, such as {"compiler": "3.1"}, or a Bypass'
    answer: Mapping[str, str] | Bypass | None = call(
        plugin, hook, Mapping | Bypass, cure, partition=partition
    )
    if isinstance(answer, Mapping) and not all(
        isinstance(text, str) for item in answer.items() for text in item
    ):
        raise fault(plugin, hook, answer, cure, partition)
    return answer


def payload_device(
    plugins: Sequence[Plugin], backend_id: str, payload: bytes, arguments: int | None = None
) -> Device | None:
    """Return the device that a compiled delegate really uses, from the first plugin that knows."""
    hook, cure = "payload_device", "return a Device, or None"
    given = {"backend_id": backend_id, "payload": payload, "arguments": arguments}
    answers = (call(plugin, hook, Device, cure, **given) for plugin in plugins)
    return next((answer for answer in answers if answer is not None), None)


def payload_data(plugins: Sequence[Plugin], backend_id: str, payload: bytes) -> tuple[str, ...]:
    """Return the keys of the named data that a delegate reads, from the first plugin that knows."""
    hook, given = "payload_data", {"backend_id": backend_id, "payload": payload}
    answers = (call_for_items(p, hook, str, "return a list of keys", **given) for p in plugins)
    return next(filter(None, answers), ())


def runner_for(plugins: Sequence[Plugin], backend_id: str) -> str | None:
    """Return the name of the runner for a backend, from the first plugin that knows one."""
    cure = "return the name of a runner, or None"
    asked = (call(plugin, "runner_for", str, cure, backend_id=backend_id) for plugin in plugins)
    return next(filter(None, asked), None)


def rounds_to(plugins: Sequence[Plugin], backend_id: str) -> str | None:
    """Return the dtype that a backend rounds float32 to, from the first plugin that knows."""
    cure = f"return {' or '.join(HALVES)}, or None"
    for plugin in plugins:
        answer: str | None = call(plugin, "rounds_to", str, cure, backend_id=backend_id)
        if answer not in (None, *HALVES):
            raise fault(plugin, "rounds_to", answer, cure)
        if answer:
            return answer
    return None


def probe(plugin: Plugin) -> Probe:
    """Return what the plugin finds on this machine."""
    answer: Probe | None = call(plugin, "probe", Probe, 'return a Probe, such as Probe(["cpu"])')
    return answer or Probe()
