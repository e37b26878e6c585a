"""Profiles: the time of each delegate, copy and kernel of a .pte, read from ExecuTorch's ETDump."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median_high
from typing import Any

from attrs import evolve

from etdev.errors import EtdevError, RunError, first_line
from etdev.files import in_scratch, scratch
from etdev.pte.instructions import InstructionStep, steps
from etdev.runtime.kernels import op_of
from etdev.runtime.run import NO_TRACE, trace
from etdev.runtime.runners import PYTHON, Runner
from etdev.schema.ledger import Entry
from etdev.schema.pins import PORTABLE
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Cost, Instruction, Profile
from etdev.upstream.emission import instruction_of

# The runtime's names for the events of whole instructions, which contain all other events.
_CALLS = ("DELEGATE_CALL", "OPERATOR_CALL")

# An instruction and its milliseconds per run.
_Timed = tuple[InstructionStep, float]


def profile(  # noqa: PLR0913 (public, and called with keywords)
    path: Path,
    inputs: Sequence[Any],
    method: str = "forward",
    repeat: int = 10,
    data: Path | None = None,
    plan: Plan | None = None,
    runner: Runner = PYTHON,
) -> Profile:
    """Run a method once to warm up, then `repeat` times with ExecuTorch's event tracer."""
    dump = trace(path, inputs, method, repeat, data, runner)
    try:
        events = _events(dump)
    except EtdevError:
        raise
    except Exception as error:
        what = f"its ETDump can't be read ({first_line(error)})"
        raise RunError(f"{path}, method {method!r}", what, "see etdev run --profile") from error
    known = steps(path, method)
    planned = next((m for m in plan.methods if m.method == method), None) if plan else None
    calls = [event for event in events if event.name in _CALLS]
    timed = [(known[instruction_of(e)], _median_ms(e)) for e in sorted(calls, key=instruction_of)]
    if not timed and any(step.kind != "control" for step in known):
        raise RunError(f"{path}, method {method!r}", "the runtime's trace has no events", NO_TRACE)
    costs = list(_costs(timed, planned))
    total = sum(cost.ms for cost in costs) or 1.0
    shares = [evolve(cost, share=cost.ms / total) for cost in costs]
    return Profile(
        method,
        costs=tuple(sorted(shares, key=lambda cost: -cost.ms)),
        runs=max((len(event.perf_data.raw) - 1 for event in events), default=0) or 1,
        times=dict(_times(timed, shares, planned)) if planned else {},
        instructions=tuple(
            Instruction(s.chain, s.index, _name(s, planned) or s.name, ms) for s, ms in timed
        ),
    )


def _events(dump: bytes) -> list[Any]:
    """Return the Inspector's events of all runs together."""
    from executorch.devtools import Inspector

    with scratch() as folder, warnings.catch_warnings():
        file = Path(folder) / "run.etdp"
        with in_scratch():
            file.write_bytes(dump)
        # It warns that there are no outputs of single nodes, which were not asked for.
        warnings.simplefilter("ignore")
        blocks = Inspector(etdump_path=str(file)).event_blocks
    return [event for block in blocks if block.name == "Execute" for event in block.events]


def _median_ms(event: Any) -> float:
    # The first run warms up.
    return float(median_high(event.perf_data.raw[1:] or event.perf_data.raw))


def _costs(timed: Sequence[_Timed], plan: MethodPlan | None) -> Iterator[Cost]:
    groups: dict[tuple[str, str, int | None], list[_Timed]] = {}
    for step, ms in timed:
        groups.setdefault((step.kind, step.name, step.delegate), []).append((step, ms))
    for group in groups.values():
        step, _ = group[0]
        number = "" if step.delegate is None else f" #{step.delegate}"
        entries = _entries(step, plan)
        owners = [entry.owner for entry in entries if entry.partition]
        modules = (entry.module for entry in entries if entry.module)
        verdicts = (verdict for entry in entries if entry.falls_back for verdict in entry.reasons)
        yield Cost(
            _name(step, plan) or f"{step.name}{number}",
            step.kind,
            calls=len(group),
            ms=sum(ms for _, ms in group),
            plugin=PORTABLE if step.delegate is None else next(iter(owners), None) or "",
            modules=tuple(dict.fromkeys(modules)),
            reasons=tuple(dict.fromkeys(f"{v.plugin}: {v.text or v.code}" for v in verdicts)),
        )


def _times(
    timed: Sequence[_Timed], costs: Sequence[Cost], plan: MethodPlan
) -> Iterator[tuple[str, float]]:
    """Yield partitions and portable nodes with their milliseconds."""
    yield from ((cost.name, cost.ms) for cost in costs if cost.name in plan.delegates)
    kernels: dict[str, list[_Timed]] = {}
    for step, ms in timed:
        if step.kind == "kernel":
            kernels.setdefault(op_of(step.name), []).append((step, ms))
    for group in kernels.values():
        entries = _entries(group[0][0], plan)
        # Both are in graph order. Where ExecuTorch added or left out a call, nothing says which.
        if len(group) == len(entries):
            yield from ((e.node, ms) for e, (_, ms) in zip(entries, group, strict=True))


def _entries(step: InstructionStep, plan: MethodPlan | None) -> Sequence[Entry]:
    """Return the nodes of a delegate, or the nodes with the op of a portable kernel."""
    if plan is None:
        return []
    if name := _name(step, plan):
        return [entry for entry in plan.ledger if entry.partition == name]
    fallbacks = [entry for entry in plan.ledger if entry.falls_back]
    return [entry for entry in fallbacks if entry.op.rpartition(".")[0] == op_of(step.name)]


def _name(step: InstructionStep, plan: MethodPlan | None) -> str:
    """Return the partition of a delegate; empty if unknown, or for another instruction."""
    if plan is None or step.delegate is None:
        return ""
    return plan.delegates[step.delegate] if step.delegate < len(plan.delegates) else ""
