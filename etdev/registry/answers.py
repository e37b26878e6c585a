"""Answers: one typed function per hook, which calls the plugin and checks what it returns.

A fault raises PluginError or ClaimError with the plugin's name. torch is imported where a program
is at hand, since `etdev plugins` asks for probes through this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from etdev.errors import ClaimError, EtdevError, PluginError, first_line
from etdev.registry.plugin import Plugin
from etdev.schema.claims import Claim, KeepWhole
from etdev.schema.device import Device, Probe
from etdev.schema.outcomes import Bypass
from etdev.schema.plan import Assumed, Draft, Partition
from etdev.schema.reasons import RESERVED
from etdev.schema.tensors import Constant

if TYPE_CHECKING:
    import pluggy
    from torch.export import ExportedProgram

    from etdev.graph.method import MethodGraph

# What goes to `node.meta`, by the name of the node.
Annotations = Mapping[str, Mapping[str, Any]]


def prepare(plugin: Plugin, program: ExportedProgram, method: str) -> ExportedProgram:
    """The program as the plugin rewrites it, or as it is."""
    from torch.export import ExportedProgram

    answer = _call(plugin, plugin.hook.prepare, method, program=program, method=method)
    if answer is None:
        return program
    if not isinstance(answer, ExportedProgram):
        raise _fault(plugin, "prepare", answer, "return an ExportedProgram")
    return answer


def keep_whole(plugin: Plugin, program: ExportedProgram, method: str) -> KeepWhole | None:
    """The ATen ops that the plugin wants to see whole; None without a wish."""
    answer = _call(plugin, plugin.hook.keep_whole, method, program=program, method=method)
    if not isinstance(answer, KeepWhole | None):
        raise _fault(plugin, "keep_whole", answer, "return KeepWhole")
    return answer


def claim_nodes(
    plugin: Plugin, graph: MethodGraph, taken: Mapping[str, str], partitions: Mapping[str, str]
) -> tuple[Claim, ...]:
    """The plugin's claims on a method, which name only nodes and constants that it has.

    Raises:
        ClaimError: The plugin changed the graph, names a node that is not there, or refuses one
            with a reason code of the host's.
    """
    from etdev.graph.nodes import fingerprint

    program, method = graph.program, graph.method
    before = fingerprint(program.graph)
    answer = _call(
        plugin,
        plugin.hook.claim_nodes,
        method,
        program=program,
        method=method,
        taken=taken,
        partitions=partitions,
    )
    if fingerprint(program.graph) != before:
        what = f"claim_nodes changed the graph of method {method!r}"
        raise ClaimError(plugin.name, what, "look at the program, don't change it")
    claims = (answer,) if isinstance(answer, Claim) else tuple(answer or ())
    for claim in claims:
        if not isinstance(claim, Claim):
            what = f"claim_nodes returned {claim!r}"
            raise ClaimError(plugin.name, what, "return a Claim or several")
        _check_claim(plugin, graph, claim)
    return claims


def claim_constants(plugin: Plugin, program: ExportedProgram, draft: Draft) -> frozenset[str]:
    """Names of the constants that travel inside the delegate.

    Raises:
        ClaimError: The partition does not read one of them, or the delegate would freeze a buffer
            that the method writes.
    """
    answer = _call(
        plugin, plugin.hook.claim_constants, draft.method, program=program, partition=draft
    )
    if isinstance(answer, str):
        what = f"claim_constants returned {answer!r}"
        raise ClaimError(plugin.name, what, "return a list of constants")
    names = {item.name if isinstance(item, Constant) else str(item) for item in answer or ()}
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
    hook = plugin.hook.resolve_device
    answer = _call(plugin, hook, partition.method, program=program, partition=partition)
    if not isinstance(answer, Device | Assumed | None):
        cure = 'return a Device, such as Device("cuda", 0)'
        raise _fault(plugin, "resolve_device", answer, cure, partition)
    return answer


def device_caveat(plugin: Plugin, program: ExportedProgram, partition: Partition) -> str:
    """Why a partition may not run where it was put; empty if it will."""
    hook = plugin.hook.device_caveat
    answer = _call(plugin, hook, partition.method, program=program, partition=partition)
    if not isinstance(answer, str | None):
        cure = "return a line of text, or None"
        raise _fault(plugin, "device_caveat", answer, cure, partition)
    return answer or ""


def annotate(plugin: Plugin, partition: Partition) -> Annotations:
    """What the compiler of a partition is to find in `node.meta`; empty for nothing."""
    answer = _call(plugin, plugin.hook.annotate, partition.method, partition=partition)
    if answer is None:
        return {}
    if not isinstance(answer, Mapping) or not all(
        isinstance(meta, Mapping) for meta in answer.values()
    ):
        cure = 'return a mapping, such as {"aten_add_tensor": {"key": 1}}'
        raise _fault(plugin, "annotate", answer, cure, partition)
    constants = [constant.name for constant in partition.constants]
    known = {*partition.nodes, *constants, *(tensor.name for tensor in partition.inputs)}
    if strange := answer.keys() - known:
        what = f"annotate names {min(strange)!r}, which is not in {partition.where}"
        raise PluginError(plugin.name, what, "name its nodes, inputs or constants")
    return answer


@contextmanager
def compile_context(plugin: Plugin, device: Device) -> Iterator[None]:
    """The context in which the plugin's partitions for a device are compiled."""
    context = _call(plugin, plugin.hook.compile_context, device=device)
    if not isinstance(context, AbstractContextManager | None):
        raise _fault(plugin, "compile_context", context, "return a context manager")
    with ExitStack() as stack:
        try:
            stack.enter_context(context or nullcontext())
        except Exception as error:
            what = f"compile_context failed for {device} with {first_line(error)}"
            raise PluginError(plugin.name, what, "the cause is chained below") from error
        yield


def cache_key(plugin: Plugin, partition: Partition) -> Mapping[str, str] | Bypass | None:
    """What else the compiled bytes of a partition depend on, or why they can't be kept."""
    answer = _call(plugin, plugin.hook.cache_key, partition.method, partition=partition)
    if answer is None or isinstance(answer, Bypass):
        return answer
    if not isinstance(answer, Mapping) or not all(
        isinstance(text, str) for item in answer.items() for text in item
    ):
        cure = 'return a mapping of text, such as {"compiler": "3.1"}, or a Bypass'
        raise _fault(plugin, "cache_key", answer, cure, partition)
    return answer


def payload_device(
    plugins: Sequence[Plugin], backend_id: str, payload: bytes, arguments: int | None = None
) -> Device | None:
    """The device that a compiled delegate really uses, from the first plugin that knows.

    Raises:
        ArtifactError: A plugin finds the payload damaged, or called with the wrong arguments.
    """
    for plugin in plugins:
        hook = plugin.hook.payload_device
        answer = _call(plugin, hook, backend_id=backend_id, payload=payload, arguments=arguments)
        if isinstance(answer, Device):
            return answer
        if answer is not None:
            raise _fault(plugin, "payload_device", answer, "return a Device, or None")
    return None


def payload_data(plugins: Sequence[Plugin], backend_id: str, payload: bytes) -> tuple[str, ...]:
    """Keys of the named data that a delegate looks up, from the first plugin that knows."""
    for plugin in plugins:
        hook = plugin.hook.payload_data
        answer = _call(plugin, hook, backend_id=backend_id, payload=payload)
        if answer is None:
            continue
        if isinstance(answer, str) or not all(isinstance(key, str) for key in answer):
            raise _fault(plugin, "payload_data", answer, "return a list of keys")
        return tuple(answer)
    return ()


def probe(plugin: Plugin) -> Probe:
    """What the plugin finds on this machine."""
    answer = _call(plugin, plugin.hook.probe)
    if not isinstance(answer, Probe | None):
        raise _fault(plugin, "probe", answer, 'return a Probe, such as Probe(["cpu"])')
    return answer or Probe()


def _call(plugin: Plugin, hook: pluggy.HookCaller, method: str = "", /, **arguments: object) -> Any:
    """What a hook returns; None if the plugin does not have it.

    Raises:
        PluginError: The plugin raised something of its own. An EtdevError passes as it is.
    """
    try:
        answers = hook(**arguments)
    except EtdevError:
        raise
    except KeyboardInterrupt as interrupt:
        # The command line says what was interrupted.
        interrupt.args = (*interrupt.args, f"plugin {plugin.name}, hook {hook.name}")
        raise
    except (Exception, SystemExit) as error:
        place = f" for method {method!r}" if method else ""
        what = f"{hook.name} raised {first_line(error)}{place}"
        raise PluginError(plugin.name, what, "the cause is chained below") from error
    return answers[0] if answers else None


def _fault(
    plugin: Plugin, hook: str, answer: object, cure: str, partition: Partition | None = None
) -> PluginError:
    place = f" for {partition.where}" if partition else ""
    return PluginError(plugin.name, f"{hook} returned {answer!r}{place}", cure)


def _check_claim(plugin: Plugin, graph: MethodGraph, claim: Claim) -> None:
    for refusal in claim.refusals:
        if refusal.node not in graph.number:
            raise _unknown(plugin, graph, "refuses", refusal.node)
        if refusal.code in RESERVED:
            raise ClaimError(
                plugin.name,
                f"refuses {refusal.node!r} with the code {refusal.code!r}, which is the host's",
                f"use a code of its own, such as op or dtype; reserved are {', '.join(RESERVED)}",
            )
    for group in claim.groups:
        for name in group.nodes:
            if name not in graph.number and name not in graph.constants:
                raise _unknown(plugin, graph, "claims", name)


def _unknown(plugin: Plugin, graph: MethodGraph, verb: str, node: str) -> ClaimError:
    return ClaimError(
        plugin.name,
        f"{verb} {node!r}, which is not a computing node of method {graph.method!r}",
        "name nodes of the program that claim_nodes was given, no inputs or outputs",
    )
