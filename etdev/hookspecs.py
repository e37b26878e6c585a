"""The hooks: all that a plugin may do, on one page.

A plugin is a class, an instance or a module whose functions carry `@hookimpl` and one of the names
below. It may take fewer arguments than the hook has. The host calls one plugin at a time, in claim
order, and never from two threads. A backend needs `claim_nodes`; `claim_constants` if weights
travel inside its delegates, and `resolve_device` if it has more than one device. plugins/README.md
describes the life of a plugin from the first hook to the last.

A plugin says with the attribute `etdev_api = 1` which version of these hooks it was written for, or
with `(1, 2)` which ones; with none that is run here it is left out with a warning, or refused if it
was asked for.

What a hook gets is the host's: look, don't change, and leave the settings of the process as they
are. What a hook returns is checked, and a fault raises PluginError with the plugin's name. Import
torch inside a hook, not at the top of a plugin's module: `etdev plugins` imports every plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from executorch.exir import EdgeCompileConfig
    from torch.export import ExportedProgram
    from torch.fx import Node

    from etdev.schema.claims import Claim, KeepWhole
    from etdev.schema.device import Device, Probe
    from etdev.schema.outcomes import Bypass
    from etdev.schema.partition import Assumed, Draft, Partition
    from etdev.schema.quirk import Row
    from etdev.schema.tensors import Constant

PROJECT = "etdev"
# The version of the hooks on this page, and the oldest one that this etdev still runs. The version
# grows when a plugin written for the old ones would no longer work: a hook or an argument that is
# gone, an answer that means something else. plugins/README.md has a table of the changes.
API = 1
OLDEST_API = 1
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def claim_nodes(
    program: ExportedProgram,
    method: str,
    taken: Mapping[str, str],
    partitions: Mapping[str, str],
    config: EdgeCompileConfig,
) -> Claim | Sequence[Claim] | None:
    """Say which nodes the backend wants, in which atomic groups, and why not the others.

    Called once per method, after the edge conversion, and again if an op that the plugin wants
    whole has to be decomposed: another plugin took a piece of it, or no plugin took it. Every
    plugin is first shown what it would be shown if it were alone; an earlier one in the claim order
    wins a contested node, and a group that lost one node is lost whole. What no plugin claims is
    decomposed, see `decompose`, or refused by name.

    Args:
        program: Edge-dialect program of one method, constants included. `node.meta["val"]` holds a
            node's fake tensor: its shape in elements and its dtype.
        method: Name of the method, such as `forward`.
        taken: The owner of each node already claimed; for a node pinned elsewhere, that plugin or
            `portable`. Only a hint: the host drops claims on it.
        partitions: The partition of each taken node, such as `cpu_0`; an op pinned elsewhere is
            alone in one. A taken op missing here was decomposed because another plugin took a piece
            of it; you are asked again and shown the pieces.
        config: ExecuTorch's EdgeCompileConfig, as the caller gave it. Its `preserve_ops` and
            `_core_aten_ops_exception_list` name ops that the caller's runtime has kernels for.

    Returns:
        A Claim, or several with different backends or compile specs, or None for nothing. A
        control-flow op is claimed with its branches; nodes inside them can't be claimed. A
        Refusal's code is the plugin's own; the host's codes (`etdev.schema.reasons`) are reserved.

    Raises:
        ClaimError: The program has something that the backend must take whole, and can't take.

    Example:
        @hookimpl
        def claim_nodes(program):
            wanted = [n for n in program.graph.nodes if "aten.mm" in str(n.target)]
            return Claim("MyBackend", [Group([node]) for node in wanted])
    """


@hookspec
def claim_constants(program: ExportedProgram, partition: Draft) -> Sequence[Constant | str] | None:
    """Say which weights travel inside a delegate.

    Called once per partition, on the plugin that owns it, after every node has an owner.

    Args:
        program: Edge-dialect program of one method. Look, don't tag: the host writes `node.meta`.
        partition: A `Draft` of one of this plugin's partitions. Its inputs are not known yet: a
            constant that it leaves outside becomes one. `partition.constants` are the parameters,
            buffers and lifted tensors that its nodes read, in the state dict's layout: a
            convolution weight is (out, in / groups, kH, kW), a linear weight (out, in).
            `size_bytes` is elements times item size, before alignment. Constants that no node
            reads are among them until a plugin claims them.

    Returns:
        Those of `partition.constants` (or their names) that the delegate keeps. None and the rest
        leave them to ExecuTorch, which passes them to the delegate as inputs.

    Raises:
        ClaimError: A constant that the backend must freeze is written by the method (a KV cache).

    Example:
        @hookimpl
        def claim_constants(partition):
            return [c for c in partition.constants if not c.mutated]
    """


@hookspec
def resolve_device(program: ExportedProgram, partition: Partition) -> Device | Assumed | None:
    """Say where a partition runs.

    Called once per partition whose device was not given (by an argument or the registry), on the
    plugin that owns it.

    Args:
        program: Edge-dialect program of one method.
        partition: One of this plugin's partitions, constants and inputs settled.

    Returns:
        A Device; an Assumed device with the reason if it is a guess (a warning, and an error under
        `strict`); None for the default, the CPU or the first device of what the claim's backend
        runs on.

    Raises:
        DeviceError: The partition names a device that can't be written into a .pte.

    Example:
        @hookimpl
        def resolve_device(partition):
            return Device("cuda", 0)
    """


@hookspec
def device_caveat(program: ExportedProgram, partition: Partition) -> str | None:
    """Say why a partition may not run where it was put.

    Called once per partition, on the plugin that owns it, after its device is settled. The device
    stays; the plan keeps the answer and a warning shows it, which is an error under `strict` unless
    the user gave the device.

    Args:
        program: Edge-dialect program of one method.
        partition: One of this plugin's partitions, `device` and `device_source` set.

    Returns:
        The reason in one line, with what to do about it; None if it runs where it was put.

    Example:
        @hookimpl
        def device_caveat(partition):
            return "runs on cuda:0 whatever the label" if partition.device.index else None
    """


@hookspec
def annotate(partition: Partition) -> Mapping[str, Mapping[str, object]] | None:
    """Say what the backend's compiler should find in `node.meta`.

    Called once per partition, on the plugin that owns it, before anything is compiled.

    Args:
        partition: One of this plugin's partitions, all settled.

    Returns:
        Keys and values by the name of a node, an input or a constant of the partition; None for
        nothing. Only this partition's compiler sees them.

    Example:
        @hookimpl
        def annotate(partition):
            return {name: {"my_pattern": "gelu"} for name in partition.nodes}
    """


@hookspec
def compile_context(device: Device) -> AbstractContextManager[object] | None:
    """Prepare this process for compiling, and undo it afterwards; import the backend if need be.

    Also put back what a library of the backend changes while it compiles, such as torch's threads.
    Called around each call of a backend's compiler, never for two devices at once. In a worker of
    `--jobs` or of an executor the plugin was made again, and only this hook and `cache_key` are
    called.

    Args:
        device: Where these partitions run.

    Returns:
        A context manager to compile in, or None if nothing has to be prepared.

    Example:
        @hookimpl
        def compile_context(device):
            return torch.cuda.device(device.index)
    """


@hookspec
def cache_key(partition: Partition) -> Mapping[str, str] | Bypass | None:
    """Say what else the compiled bytes of a partition depend on, for the compile cache.

    Called once per partition, inside `compile_context`. The host's key already has the partition's
    program with its weights, compile specs and annotations, the versions of ExecuTorch, torch, the
    plugin, the backend and all that these require, the kind of GPU, what `compile_context` changed
    in the environment, and the options of an attrs class. A plugin that has `compile_context` is
    cached only if it has this hook, too.

    Args:
        partition: One of this plugin's own.

    Returns:
        Names and values, such as the version of a compiler that is not a Python distribution. A
        Bypass to have the partition compiled afresh each time. None: nothing else.

    Example:
        @hookimpl
        def cache_key():
            return {"vendorcc": "3.1"}
    """


@hookspec
def quirks() -> Sequence[Row] | None:
    """Add faults of the backend or of its compiler to the table of upstream's faults.

    Called once per `Lowerer`, when it is made. `etdev quirks` lists the rows, which are looked for
    after those of the host and of earlier plugins.

    Returns:
        Rows with names that nobody else has. A row counts until the installed release is known to
        be without its fault (`fixed`).

    Example:
        @hookimpl
        def quirks():
            import torch

            from etdev.quirks import VALIDATE, Nodes, Quirk, Rejection

            return [
                Quirk(
                    name="my-backend-erfinv",
                    stage=VALIDATE,
                    summary="MyBackend computes erfinv of 1 as NaN.",
                    upstream="my-org/my-backend#12",
                    find=Nodes((torch.ops.aten.erfinv.default,)),
                    refusal=Rejection("MyBackend gets {op} wrong{where}", "leave erfinv out"),
                )
            ]
    """


@hookspec
def prepare(program: ExportedProgram, method: str) -> ExportedProgram | None:
    """Rewrite what ExecuTorch's conversion to the edge dialect can't read.

    Called once per method, before anything else, on every plugin in claim order; each gets what
    the one before it returned. Not called for programs in the edge dialect, nor by
    `etdev.partitioner()`.

    Args:
        program: ATen-dialect program of one method. It is the caller's: change a copy.
        method: Name of the method.

    Returns:
        A program that computes the same from the same inputs, or None to leave it as it is. Its
        last outputs may have become new values of buffers, declared in its signature. A plugin
        with `approximates = True`, such as a quantiser, may return one that computes nearly the
        same, which the .pte is then verified against.

    Example:
        @hookimpl
        def prepare(program):
            return program.run_decompositions({})
    """


@hookspec
def quantizers() -> Mapping[str, Callable[[], Any]] | None:
    """Name the quantisers of PT2E whose programs the backend computes in few bits.

    Called by the plugin `precision` of etdev-tune, for recipes of the precision of each layer.

    Returns:
        Functions that make a torchao Quantizer for all that the backend supports, by name.

    Example:
        @hookimpl
        def quantizers():
            return {"int8": MyQuantizer}
    """


@hookspec
def keep_whole(program: ExportedProgram, method: str) -> KeepWhole | None:
    """Say which ATen ops to keep whole, so that `claim_nodes` sees `linear` and not its pieces.

    Called several times per method while the program is decomposed, before `claim_nodes`. What no
    plugin claims in the end is decomposed after all.

    Args:
        program: ATen-dialect, functional program of one method.
        method: Name of the method.

    Returns:
        Ops and a check per node, or None to have everything decomposed, as it is in control-flow
        branches. `KeepWhole.decomposes` names the ops that `decompose` writes differently from
        torch and ExecuTorch.

    Example:
        @hookimpl
        def keep_whole():
            import torch

            return KeepWhole([torch.ops.aten.linear.default])
    """


@hookspec
def decompose(node: Node, config: EdgeCompileConfig) -> Callable[..., Any] | None:
    """Say how an op is written in other ops.

    Called for each node of an op in a plugin's `KeepWhole.decomposes` that no plugin wants whole,
    for each node inside control-flow branches, and for each node that no plugin claimed; on every
    plugin in claim order until one answers. An op that ExecuTorch has is offered to all plugins
    before, unless a plugin that named it in `decomposes` has a formula for the node.

    Nodes with the same op, shapes, dtypes and numbers share the pieces, which are offered to all
    plugins again. A piece that is the same op is not decomposed again: `etdev.graph.pieces_of`
    names the ops that a node was written for.

    Args:
        node: Edge-dialect node of the program or of a branch. Look, don't change it.
        config: ExecuTorch's EdgeCompileConfig, as for `claim_nodes`.

    Returns:
        A function that is called as the ATen op is, and returns what it returns; torch traces it.
        It raises NotImplementedError for arguments that it can't express, and the node stays whole.
        None leaves the node to the next plugin, at last to the tables of ExecuTorch and torch.

    Example:
        @hookimpl
        def decompose(node):
            if op_name(node) == "aten.hardswish.default":  # from etdev.graph import op_name
                return lambda x: x * (x + 3).clamp(0, 6) / 6
    """


@hookspec
def payload_device(backend_id: str, payload: bytes, arguments: int | None) -> Device | None:
    """Say which device a compiled delegate really uses, whatever its label says.

    Called by `etdev check`, once per delegate of a .pte, on every plugin until one answers; also
    for delegates that etdev didn't make.

    Args:
        backend_id: Name of the ExecuTorch backend that will run it.
        payload: The delegate's compiled bytes. Untrusted: read them, don't unpickle or run them.
        arguments: How many values a call passes, inputs and outputs together; None if the program
            never calls it.

    Returns:
        The device, or None if the backend is another plugin's or the payload doesn't tell.

    Raises:
        ArtifactError: The payload is this backend's but damaged, or needs other arguments. The
            text becomes a line of `etdev check`.

    Example:
        @hookimpl
        def payload_device(backend_id):
            return Device("cpu") if backend_id == "MyBackend" else None
    """


@hookspec
def payload_data(backend_id: str, payload: bytes) -> Sequence[str] | None:
    """Say which named data a compiled delegate looks up when it is loaded, such as its weights.

    Called as `payload_device`. What is not in the .pte must be in its .ptd file.

    Args:
        backend_id: Name of the ExecuTorch backend that will run it.
        payload: The delegate's compiled bytes. Untrusted: read them, don't unpickle or run them.

    Returns:
        Keys of the named data, or None if the backend is another plugin's or keeps no such data.

    Example:
        @hookimpl
        def payload_data(backend_id, payload):
            return payload.decode().splitlines() if backend_id == "MyBackend" else None
    """


@hookspec
def runner_for(backend_id: str) -> str | None:
    """Say which runner loads a backend's delegates, where executorch.runtime can't.

    Called when a .pte is loaded, once per backend and command, on every plugin until one answers;
    also for delegates that etdev didn't make. `--runner` takes precedence.

    Args:
        backend_id: Name of the ExecuTorch backend that runs the delegates.

    Returns:
        A name in the entry-point group `etdev.runners`; None if the backend is another plugin's, or
        executorch.runtime loads its delegates.

    Example:
        @hookimpl
        def runner_for(backend_id):
            return "my-runtime" if backend_id == "MyBackend" else None
    """


@hookspec
def rounds_to(backend_id: str) -> str | None:
    """Say which dtype a backend rounds float32 values to on this machine.

    Called when a .pte is verified against PyTorch, once per backend, on every plugin until one
    answers; also for delegates that etdev didn't make. The tolerance is that of the answer.

    Args:
        backend_id: Name of the ExecuTorch backend that runs the delegates.

    Returns:
        `bfloat16` or `float16`; None if the backend is another plugin's or rounds to neither.

    Example:
        @hookimpl
        def rounds_to(backend_id):
            return "float16" if backend_id == "MyBackend" else None
    """


@hookspec
def probe() -> Probe | None:
    """Say what the backend finds on this machine, for `etdev plugins` and before compiling.

    Called at most once per command, on every plugin: by `etdev plugins`, and before a model is
    exported that is to be compiled. Must answer in milliseconds without torch.

    Returns:
        The devices it can use here and, if it can plan but not compile here, the reason in one
        line: it is left out then, or an error if the user named it. None: it can compile here, for
        the CPU.

    Example:
        @hookimpl
        def probe():
            return Probe(devices=[Device("cpu")])
    """
