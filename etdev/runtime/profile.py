"""Profiles: the time of each delegate, copy and kernel of a .pte, read from ExecuTorch's ETDump."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from etdev.errors import EtdevError, RunError, first_line
from etdev.files import in_scratch, scratch
from etdev.pte.instructions import Step, steps
from etdev.runtime.run import NO_TRACE, trace
from etdev.runtime.runners import PYTHON, Runner
from etdev.schema.ledger import Entry
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Call, Cost, Profile
from etdev.upstream.emission import instruction_of

# The runtime's names for the events of whole instructions, which contain all other events.
_CALLS = ("DELEGATE_CALL", "OPERATOR_CALL")

# An instruction and its milliseconds per run.
_Timed = tuple[Step, float]


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
        times=dict(_times(timed, planned)) if planned else {},
        calls=tuple(Call(s.chain, s.index, _name(s, planned) or s.name, ms) for s, ms in timed),
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
    times = sorted(event.perf_data.raw[1:] or event.perf_data.raw)
    return float(times[len(times) // 2])


def _costs(timed: Sequence[_Timed], plan: MethodPlan | None) -> Iterator[Cost]:
    groups: dict[tuple[str, str, int | None], list[_Timed]] = {}
    for step, ms in timed:
        groups.setdefault((step.kind, step.name, step.delegate), []).append((step, ms))
    for group in groups.values():
        step, _ = group[0]
        cost = Cost(step.name, step.kind, len(group), sum(ms for _, ms in group))
        if step.delegate is None:
            yield _of_kernel(cost, plan)
            continue
        name = _name(step, plan)
        found = [p for p in plan.partitions if p.name == name] if plan else []
        if plan and found:
            nodes = set(found[0].nodes)
            modules = dict.fromkeys(e.module for e in plan.ledger if e.node in nodes and e.module)
            yield evolve(cost, name=name, plugin=found[0].plugin, modules=tuple(modules))
        else:
            yield evolve(cost, name=f"{cost.name} #{step.delegate}")


def _of_kernel(cost: Cost, plan: MethodPlan | None) -> Cost:
    entries = _fallbacks(plan).get(_op(cost.name), []) if plan else []
    reasons = (f"{v.plugin}: {v.text or v.code}" for entry in entries for v in entry.verdicts)
    modules = dict.fromkeys(entry.module for entry in entries if entry.module)
    return evolve(
        cost, plugin="portable", modules=tuple(modules), reasons=tuple(dict.fromkeys(reasons))
    )


def _times(timed: Sequence[_Timed], plan: MethodPlan) -> Iterator[tuple[str, float]]:
    """Yield partitions and portable nodes with their milliseconds."""
    kernels: dict[str, list[float]] = {}
    partitions: dict[str, float] = {}
    for step, ms in timed:
        if name := _name(step, plan):
            partitions[name] = partitions.get(name, 0.0) + ms
        elif step.kind == "kernel":
            kernels.setdefault(_op(step.name), []).append(ms)
    yield from partitions.items()
    fallbacks = _fallbacks(plan)
    for op, times in kernels.items():
        entries = fallbacks.get(op, [])
        # Both are in graph order. Where ExecuTorch added or left out a call, nothing says which.
        if len(times) == len(entries):
            yield from zip([entry.node for entry in entries], times, strict=True)


def _name(step: Step, plan: MethodPlan | None) -> str:
    """Return the partition of a delegate; empty if unknown, or for another instruction."""
    if plan is None or step.delegate is None:
        return ""
    return plan.delegates[step.delegate] if step.delegate < len(plan.delegates) else ""


def _fallbacks(plan: MethodPlan) -> Mapping[str, Sequence[Entry]]:
    """Return the nodes that portable kernels compute, by op without its overload."""
    entries: dict[str, list[Entry]] = {}
    for entry in plan.ledger:
        if entry.falls_back:
            entries.setdefault(entry.op.rpartition(".")[0], []).append(entry)
    return entries


def _op(kernel: str) -> str:
    """Return the op of a kernel without its overload: `aten.add` for `aten::add.out`."""
    return kernel.partition(".")[0].replace("::", ".")
