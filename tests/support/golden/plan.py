"""Plans in text: partitions, copies, what falls back, and who said what of each node."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from etdev import Plan
from etdev.schema.ledger import Entry
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan
from etdev.schema.tensors import Constant
from support.golden.plugin import Asked

_WIDTH = 100


def plan_text(plan: Plan) -> str:
    """Everything that was decided; shapes and sizes apart."""
    lines: list[str] = []
    for method in plan.methods:
        if len(plan.methods) > 1:
            lines.append(f"method {method.method}")
        lines += _method(method)
    return "\n".join(lines)


def asked_text(asked: Iterable[Asked]) -> str:
    """Each call of `claim_nodes`: what was shown, and what was said to be taken."""
    lines: list[str] = []
    for call in asked:
        lines.append(f"{call.plugin} is asked")
        lines += _listed("shown", call.shown)
        lines += _listed("taken", [f"{node}={owner}" for node, owner in call.taken.items()])
        homes = [f"{node}={home}" for node, home in sorted(call.partitions.items())]
        lines += _listed("partitions", homes)
    return "\n".join(lines)


def _method(plan: MethodPlan) -> Iterator[str]:
    for partition in plan.partitions:
        yield from _partition(partition)
    if list(plan.delegates) != [partition.name for partition in plan.partitions]:
        yield from _listed("delegates", plan.delegates, indent="")
    for copy in plan.copies:
        yield f"copy {copy.tensor.name} from {copy.source} to {copy.target}"
    for kind, count in plan.simplified.items():
        yield f"simplified {kind} {count}"
    for fix in plan.fixes:
        yield f"fixed {fix.row} in {fix.stage}: {' '.join(fix.found)}"
    if plan.copied_bytes:
        yield f"copied_bytes {plan.copied_bytes}"
    yield from _listed("fallback", plan.fallback, indent="")
    yield "ledger"
    verdicts: dict[str, list[str]] = {}
    for entry in plan.ledger:
        verdicts.setdefault(_verdicts(entry), []).append(entry.node)
    for said, nodes in verdicts.items():
        yield from _wrapped(f"  {' '.join(nodes)}", "  ")
        yield from textwrap.indent(said, "    ").splitlines()


def _partition(partition: Partition) -> Iterator[str]:
    where = f"{partition.device} ({partition.device_source})"
    yield f"{partition.name} of {partition.plugin} for {partition.backend_id} on {where}"
    if partition.device_note:
        yield f"  note {partition.device_note}"
    yield from _listed("nodes", partition.nodes)
    yield from _listed("inputs", [value.name for value in partition.inputs])
    yield from _listed("outputs", [value.name for value in partition.outputs])
    yield from _listed("constants", [_constant(constant) for constant in partition.constants])
    specs = [f"{spec.key}={spec.value.decode()}" for spec in partition.compile_specs]
    yield from _listed("specs", specs)
    if partition.split_by:
        yield f"  split by {partition.split_by}"


def _constant(constant: Constant) -> str:
    storage = constant.storage + (f" x{constant.copies}" if constant.copies > 1 else "")
    marks = [storage, *["mutated"] * constant.mutated, *["grouped"] * constant.grouped]
    return f"{constant.target} ({', '.join(marks)})"


def _verdicts(entry: Entry) -> str:
    """All that was said of a node, and which pin it was pinned by."""
    lines = [
        f"{verdict.plugin} {verdict.code}{': ' if verdict.text else ''}{verdict.text}"
        for verdict in entry.verdicts
    ]
    if entry.pin:
        lines.append(f"pin {entry.pin} is {'kept' if entry.pin_kept else 'not kept'}")
    return "\n".join(lines) or "no plugin was asked"


def _listed(title: str, items: Sequence[str], indent: str = "  ") -> list[str]:
    return _wrapped(f"{indent}{title} {' '.join(items)}", f"{indent}  ") if items else []


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
