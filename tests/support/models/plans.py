"""Plans for the page: of many nodes, of several devices, and with hostile names."""

from __future__ import annotations

from attrs import evolve

from etdev import Device, Plan, Tensor
from etdev.schema.device import CPU
from etdev.schema.ledger import Entry, Ledger, Verdict
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan
from etdev.schema.tensors import Constant, Copy

GPU = Device("cuda", 1)
HOSTILE = "</script><!--<b onclick='x'>&\u2028\"\\"


def chain(layers: int, wide: int = 6) -> Plan:
    """A model of layers: in each a partition of some nodes, then a softmax that nobody has."""
    entries: list[Entry] = []
    partitions: list[Partition] = []
    before = "x"
    for layer in range(layers):
        nodes = tuple(f"linear_{layer}_{index}" for index in range(wide))
        reads = [before, *nodes[:-1]]
        module, name = f"model.layer.{layer}.attention", f"gpu_{layer}"
        for node, read in zip(nodes, reads, strict=True):
            said = (Verdict("gpu", "claimed"), Verdict("cpu", "lost", "owned by gpu"))
            entries.append(
                _entry(node, "aten.linear.default", f"{module}.dense", said, name, (read,))
            )
        missed = (Verdict("gpu", "op", "no kernel for softmax"), Verdict("cpu", "no-reason"))
        softmax = f"softmax_{layer}"
        entries.append(_entry(softmax, "aten._softmax.default", module, missed, None, (nodes[-1],)))
        partitions.append(_partition(name, nodes, before, layer))
        before = softmax
    copies = tuple(
        copy
        for partition in partitions
        for copy in (
            Copy(partition.inputs[0], CPU, GPU),
            Copy(partition.outputs[0], GPU, CPU),
        )
    )
    fallback = tuple(entry.node for entry in entries if entry.falls_back)
    names = tuple(partition.name for partition in partitions)
    ledger = Ledger(tuple(entries))
    method = MethodPlan("forward", tuple(partitions), names, copies, fallback, ledger)
    return Plan((method,), (("gpu", "1.0"), ("cpu", "0.1.0")))


def masked(layers: int, name: str) -> Plan:
    """A model of layers whose modules have names like that, and that all read one mask."""
    plan = chain(layers)
    (method,) = plan.methods
    entries = [
        evolve(
            entry,
            module=entry.module.replace("model.layer.", name),
            inputs=(*entry.inputs, "mask") if entry.falls_back else entry.inputs,
        )
        for entry in method.ledger
    ]
    return evolve(plan, methods=(evolve(method, ledger=Ledger((*entries,))),))


def hostile() -> Plan:
    """A plan whose names and reasons would be HTML if nobody escaped them."""
    plan = chain(2)
    (method,) = plan.methods
    entries = tuple(
        evolve(
            entry,
            module=HOSTILE,
            line=HOSTILE,
            op=f"{entry.op}{HOSTILE}",
            verdicts=tuple(evolve(verdict, text=HOSTILE) for verdict in entry.verdicts),
        )
        for entry in method.ledger
    )
    return evolve(plan, methods=(evolve(method, method=HOSTILE, ledger=Ledger(entries)),))


def _entry(
    node: str,
    op: str,
    module: str,
    verdicts: tuple[Verdict, ...],
    partition: str | None,
    inputs: tuple[str, ...],
) -> Entry:
    return Entry(
        node=node,
        op=op,
        owner="gpu" if partition else None,
        partition=partition,
        verdicts=verdicts,
        module=module,
        line=f"net.py:{len(node)}",
        inputs=inputs,
    )


def _partition(name: str, nodes: tuple[str, ...], read: str, layer: int) -> Partition:
    return Partition(
        name=name,
        method="forward",
        plugin="gpu",
        backend_id="GpuBackend",
        nodes=nodes,
        constants=(
            Constant(f"w_{layer}", f"layer.{layer}.weight", "parameter", "float32", (8, 8), 256,
                     storage="owned"),
        ),
        device_types=("cpu", "cuda"),
        inputs=(Tensor(read, "float32", (2, 8), 64),),
        outputs=(Tensor(nodes[-1], "float32", (2, 8), 64),),
        device=GPU,
        device_source="pinned",
    )  # fmt: skip
