"""Answers: one typed function per hook, which calls the plugin and checks what it returns.

A fault raises PluginError or ClaimError with the plugin's name. torch is imported where a program
is at hand, since `etdev plugins` asks for probes through this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import evolve

from etdev.errors import ClaimError, PluginError, first_line
from etdev.registry.calls import call, fault, guarded, items

# The answer to it is in a file of its own.
from etdev.registry.contexts import compile_context as compile_context
from etdev.registry.plugin import Plugin
from etdev.registry.watchdog import waiting_for
from etdev.schema.claims import Claim, KeepWhole
from etdev.schema.device import Device, Probe
from etdev.schema.outcomes import Bypass
from etdev.schema.partition import Assumed, Draft, Partition
from etdev.schema.quirk import Quirk
from etdev.schema.tensors import Constant

if TYPE_CHECKING:
    from executorch.exir import EdgeCompileConfig
    from torch.export import ExportedProgram
    from torch.fx import Node

    from etdev.graph.method import MethodGraph

# Keys of `node.meta` that ExecuTorch and the host rely on.
HOST_META = {"val", "tensor_meta", "spec", "debug_handle", "delegation_tag"}
# What a backend may round float32 to.
_ROUNDED = ("bfloat16", "float16")
# What goes to `node.meta`, by the name of the node.
Annotations = Mapping[str, Mapping[str, Any]]


def quirks(plugin: Plugin) -> tuple[Quirk, ...]:
    """The faults that the plugin adds to the table."""
    cure = "return a list of Quirks"
    rows = items(plugin, "quirks", call(plugin, "quirks"), cure)
    for row in rows:
        if not isinstance(row, Quirk):
            raise fault(plugin, "quirks", row, cure)
    return rows


def prepare(plugin: Plugin, program: ExportedProgram, method: str) -> ExportedProgram:
    """The program as the plugin rewrites it, or as it is."""
    from torch.export import ExportedProgram

    from etdev.graph.signature import defect, interface_change, name_inputs

    answer = call(plugin, "prepare", method, program=program, method=method)
    if answer is None:
        return program
    if not isinstance(answer, ExportedProgram):
        raise fault(plugin, "prepare", answer, "return an ExportedProgram")
    name_inputs(answer)
    if wrong := defect(answer):
        what = f"prepare returned for method {method!r} what is not a program: {first_line(wrong)}"
        raise PluginError(plugin.name, what, "change nodes and signature together") from wrong
    if change := interface_change(program, answer):
        cure = "return a program that takes and returns the same"
        raise PluginError(plugin.name, f"prepare changed {change} in method {method!r}", cure)
    return answer


def keep_whole(plugin: Plugin, program: ExportedProgram, method: str) -> KeepWhole | None:
    """The ATen ops that the plugin wants to see whole; None without a wish."""
    from etdev.upstream.operators import OpOverload

    answer = call(plugin, "keep_whole", method, program=program, method=method)
    if answer is None:
        return None
    cure = "return KeepWhole"
    if not isinstance(answer, KeepWhole):
        raise fault(plugin, "keep_whole", answer, cure)
    for op in (*answer.ops, *answer.decomposes):
        if not isinstance(op, OpOverload):
            raise fault(plugin, "keep_whole", op, "name ops such as torch.ops.aten.mm.default")
    return _named(plugin, method, answer)


def _named(plugin: Plugin, method: str, wish: KeepWhole) -> KeepWhole:
    """Make the check of a wish name the plugin, the method and the node when it raises."""
    when = wish.when
    if when is None:
        return wish

    def check(node: Node) -> bool:
        with _looked_at(plugin, f"keep_whole's check of {node.name!r}", node, method):
            return bool(when(node))

    return evolve(wish, when=check)


@contextmanager
def _looked_at(plugin: Plugin, what: str, node: Node, method: str = "") -> Iterator[None]:
    """Name the plugin in what is raised while it looks at one node, and refuse a changed node."""
    before = dict(node.meta)
    with (
        guarded(plugin, what, method),
        waiting_for(plugin.name, what, plugin.limits.hook_timeout_s),
    ):
        yield
    if node.meta.keys() != before.keys() or any(node.meta[k] is not before[k] for k in before):
        node.meta = before
        place = f" in method {method!r}" if method else ""
        text = f"{what} changed its meta{place}"
        raise PluginError(plugin.name, text, "look at the node, don't change it")


def decompose(
    plugins: Sequence[Plugin], node: Node, config: EdgeCompileConfig
) -> Callable[..., Any] | None:
    """How an op is written in other ops, from the first plugin that knows; None if none does."""
    for plugin in plugins:
        # Looked up here, since this is asked about many nodes.
        if "decompose" not in plugin.hooks:
            continue
        with _looked_at(plugin, f"decompose of {node.name!r}", node):
            given = plugin.hook.decompose(node=node, config=config)
        if given and not callable(given[0]):
            raise fault(plugin, "decompose", given[0], "return a function, or None")
        if given:
            pieces: Callable[..., Any] = given[0]
            return pieces
    return None


def claim_nodes(
    plugin: Plugin,
    graph: MethodGraph,
    taken: Mapping[str, str],
    partitions: Mapping[str, str],
    config: EdgeCompileConfig,
) -> tuple[Claim, ...]:
    """The plugin's claims on a method, which name only nodes and constants that it has.

    Raises:
        ClaimError: The plugin changed the graph, names a node that is not there, refuses one that
            it claims, or refuses one with a reason code of the host's.
    """
    from etdev.registry.claims import check_claims

    program, method = graph.program, graph.method
    answer = call(
        plugin,
        "claim_nodes",
        method,
        program=program,
        method=method,
        # The host's own.
        taken=MappingProxyType(taken),
        partitions=MappingProxyType(partitions),
        config=config,
    )
    cure = "return a Claim or several"
    claims = (answer,) if isinstance(answer, Claim) else items(plugin, "claim_nodes", answer, cure)
    for claim in claims:
        if not isinstance(claim, Claim):
            raise fault(plugin, "claim_nodes", claim, cure)
    check_claims(plugin, graph, claims)
    return claims


def claim_constants(plugin: Plugin, program: ExportedProgram, draft: Draft) -> frozenset[str]:
    """Names of the constants that travel inside the delegate.

    Raises:
        ClaimError: The partition does not read one of them, or the delegate would freeze a buffer
            that the method writes.
    """
    hook, cure = "claim_constants", "return a list of constants"
    answer = call(plugin, hook, draft.method, program=program, partition=draft)
    if isinstance(answer, str):
        raise fault(plugin, hook, answer, cure)
    constants = items(plugin, hook, answer, cure)
    names = {item.name if isinstance(item, Constant) else str(item) for item in constants}
    readable = {constant.name: constant for constant in draft.constants}
    for name in sorted(names):
        if name not in readable:
            what = f"claims the constant {name!r}, which {draft.where} does not read"
            raise ClaimError(plugin.name, what, "choose from partition.constants")
        if not draft.may_hold(readable[name]):
            raise ClaimError(
                plugin.name,
                f"would freeze the buffer {readable[name].target!r} in {draft.where}, "
                "but the method writes to it",
                "leave out constants that are mutated",
            )
    return frozenset(names)


def resolve_device(
    plugin: Plugin, program: ExportedProgram, partition: Partition
) -> Device | Assumed | None:
    """Where the plugin says a partition runs; None for the default."""
    answer = call(plugin, "resolve_device", partition.method, program=program, partition=partition)
    if not isinstance(answer, Device | Assumed | None):
        cure = 'return a Device, such as Device("cuda", 0)'
        raise fault(plugin, "resolve_device", answer, cure, partition)
    return answer


def device_caveat(plugin: Plugin, program: ExportedProgram, partition: Partition) -> str:
    """Why a partition may not run where it was put; empty if it will."""
    answer = call(plugin, "device_caveat", partition.method, program=program, partition=partition)
    if not isinstance(answer, str | None) or not (answer or "").isprintable():
        cure = "return a line of text, or None"
        raise fault(plugin, "device_caveat", answer, cure, partition)
    return answer or ""


def annotate(plugin: Plugin, partition: Partition) -> Annotations:
    """What the compiler of a partition is to find in `node.meta`; empty for nothing."""
    answer = call(plugin, "annotate", partition.method, partition=partition)
    if answer is None:
        return {}
    if not isinstance(answer, Mapping) or not all(
        isinstance(name, str)
        and isinstance(meta, Mapping)
        and all(isinstance(key, str) for key in meta)
        for name, meta in answer.items()
    ):
        cure = 'return a mapping, such as {"aten_add_tensor": {"key": 1}}'
        raise fault(plugin, "annotate", answer, cure, partition)
    constants = [constant.name for constant in partition.constants]
    for name, meta in answer.items():
        if taken := sorted(HOST_META & meta.keys()):
            what = f"annotate overwrites meta[{taken[0]!r}] of {name!r} in {partition.where}"
            raise PluginError(plugin.name, what, "the host writes it; use a key of its own")
    known = {*partition.nodes, *constants, *(tensor.name for tensor in partition.inputs)}
    if strange := answer.keys() - known:
        what = f"annotate names {min(strange)!r}, which is not in {partition.where}"
        raise PluginError(plugin.name, what, "name its nodes, inputs or constants")
    return answer


def cache_key(plugin: Plugin, partition: Partition) -> Mapping[str, str] | Bypass | None:
    """What else the compiled bytes of a partition depend on, or why they can't be kept."""
    answer = call(plugin, "cache_key", partition.method, partition=partition)
    if answer is None or isinstance(answer, Bypass):
        return answer
    if not isinstance(answer, Mapping) or not all(
        isinstance(text, str) for item in answer.items() for text in item
    ):
        cure = 'return a mapping of text, such as {"compiler": "3.1"}, or a Bypass'
        raise fault(plugin, "cache_key", answer, cure, partition)
    return answer


def payload_device(
    plugins: Sequence[Plugin], backend_id: str, payload: bytes, arguments: int | None = None
) -> Device | None:
    """The device that a compiled delegate really uses, from the first plugin that knows.

    Raises:
        ArtifactError: A plugin finds the payload damaged, or called with the wrong arguments.
    """
    for plugin in plugins:
        given = {"backend_id": backend_id, "payload": payload, "arguments": arguments}
        answer = call(plugin, "payload_device", **given)
        if isinstance(answer, Device):
            return answer
        if answer is not None:
            raise fault(plugin, "payload_device", answer, "return a Device, or None")
    return None


def payload_data(plugins: Sequence[Plugin], backend_id: str, payload: bytes) -> tuple[str, ...]:
    """Keys of the named data that a delegate looks up, from the first plugin that knows."""
    for plugin in plugins:
        hook, cure = "payload_data", "return a list of keys"
        answer = call(plugin, hook, backend_id=backend_id, payload=payload)
        if answer is None:
            continue
        keys = items(plugin, hook, answer, cure)
        if isinstance(answer, str) or not all(isinstance(key, str) for key in keys):
            raise fault(plugin, hook, answer, cure)
        return keys
    return ()


def rounds_to(plugins: Sequence[Plugin], backend_id: str) -> str | None:
    """Return the dtype that a backend rounds float32 to, from the first plugin that knows."""
    for plugin in plugins:
        answer = call(plugin, "rounds_to", backend_id=backend_id)
        if answer in _ROUNDED:
            return str(answer)
        if answer is not None:
            raise fault(plugin, "rounds_to", answer, f"return {' or '.join(_ROUNDED)}, or None")
    return None


def probe(plugin: Plugin) -> Probe:
    """What the plugin finds on this machine."""
    answer = call(plugin, "probe")
    if not isinstance(answer, Probe | None):
        raise fault(plugin, "probe", answer, 'return a Probe, such as Probe(["cpu"])')
    return answer or Probe()
