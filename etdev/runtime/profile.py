"""Profiles: the time of each delegate, copy and kernel of a .pte, from ExecuTorch's ETDump."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

import etdev.schema.report  # noqa: F401 (notebooks and rich show profiles)
from etdev.errors import RunError, first_line
from etdev.files import in_scratch, scratch
from etdev.pte import ptd
from etdev.pte.read import read
from etdev.pte.steps import Step, steps
from etdev.runtime.inputs import check_inputs, laid_out, method_of
from etdev.runtime.kernels import load_kernels
from etdev.schema.ledger import Entry
from etdev.schema.modules import module_times
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Call, Cost, Profile, Span
from etdev.upstream.emission import instruction_of
from etdev.upstream.versions import load_program

# What the runtime calls the events of whole instructions; the others are within these.
_CALLS = ("DELEGATE_CALL", "OPERATOR_CALL")


def profile(
    path: Path,
    inputs: Sequence[Any],
    method: str = "forward",
    repeat: int = 10,
    data: Path | None = None,
    plan: Plan | None = None,
) -> Profile:
    """Run a method once to warm up, then `repeat` times with ExecuTorch's event tracer.

    Args:
        path: The .pte.
        inputs: Its inputs, flat.
        method: Which method.
        repeat: Number of timed runs.
        data: Its .ptd; one beside it if it needs one and this is None.
        plan: Its plan, for partitions, modules and reasons.

    Raises:
        ArtifactError: The file is not a .pte, or its .ptd is missing.
        RunError: The runtime can't load it or writes no trace, or refuses the inputs.
    """
    artifact = read(path)
    facts = method_of(artifact, method)
    check_inputs(facts, inputs)
    load_kernels(facts)
    events = _traced(
        path, laid_out(facts, inputs), method, repeat, data or ptd.find(artifact, path)
    )
    return _profile(events, path, method, repeat, plan)


def profile_of(dump: bytes, path: Path, method: str, plan: Plan | None = None) -> Profile:
    """The profile of an ETDump that a runtime wrote elsewhere; its first run warms up.

    Args:
        dump: What the runtime wrote.
        path: The .pte that it ran.
        method: Which method.
        plan: Its plan, for partitions, modules and reasons.

    Raises:
        ArtifactError: The file is not a .pte.
        RunError: The dump can't be read.
    """
    with scratch() as folder:
        file = Path(folder) / "run.etdp"
        with in_scratch():
            file.write_bytes(dump)
        try:
            events = _events(file)
        except Exception as error:
            what = f"its ETDump can't be read ({first_line(error)})"
            raise RunError(f"{path}, method {method!r}", what, "see etdev run --profile") from error
    runs = max((len(event.perf_data.raw) for event in events), default=1)
    return _profile(events, path, method, runs, plan)


def _profile(
    events: Sequence[Any], path: Path, method: str, runs: int, plan: Plan | None
) -> Profile:
    known = steps(path, method)
    calls = [event for event in events if event.name in _CALLS]
    planned = _method(plan, method)
    costs = list(_costs(calls, known, planned))
    total = sum(cost.ms for cost in costs) or 1.0
    shares = [evolve(cost, share=cost.ms / total) for cost in costs]
    shares.sort(key=lambda cost: -cost.ms)
    times = dict(_times(calls, known, planned)) if planned else {}
    every = tuple(_call(event, known, planned) for event in calls)
    modules = module_times(planned, times) if planned else ()
    spans = tuple(_spans(events, known))
    return Profile(method, tuple(shares), runs, times, modules, every, spans)


def _method(plan: Plan | None, name: str) -> MethodPlan | None:
    methods = plan.methods if plan else ()
    return next((method for method in methods if method.method == name), None)


def _traced(
    path: Path, inputs: Sequence[Any], method: str, repeat: int, data: Path | None
) -> list[Any]:
    """The Inspector's events of all runs together."""
    try:
        program = load_program(path, data, trace=True)
        loaded = program.load_method(method)
        for _ in range(repeat + 1):
            loaded.execute(inputs)
        with scratch() as folder:
            dump = Path(folder) / "run.etdp"
            program.write_etdump_result_to_file(str(dump), str(Path(folder) / "debug.bin"))
            if not dump.exists():
                cure = (
                    "use ExecuTorch 1.5 or later, or build it with EXECUTORCH_ENABLE_EVENT_TRACER"
                )
                raise RunError(str(path), "the runtime writes no trace", cure)
            return _events(dump)
    except RuntimeError as error:
        what = f"the runtime failed with {first_line(error)}"
        raise RunError(f"{path}, method {method!r}", what, "see etdev check") from error


def _events(dump: Path) -> list[Any]:
    """The events of all runs together."""
    from executorch.devtools import Inspector

    with warnings.catch_warnings():
        # It wants to say that there are no outputs of single nodes, which were not asked for.
        warnings.simplefilter("ignore")
        blocks = Inspector(etdump_path=str(dump)).event_blocks
    return [event for block in blocks if block.name == "Execute" for event in block.events]


def _costs(calls: Sequence[Any], known: Sequence[Step], plan: MethodPlan | None) -> Iterator[Cost]:
    groups: dict[tuple[str, str, int | None], list[Any]] = {}
    for event in calls:
        step = _step(event, known)
        groups.setdefault((step.kind, step.name, step.delegate), []).append(event)
    for (kind, name, delegate), events in groups.items():
        cost = Cost(name, kind, len(events), sum(_median_ms(event) for event in events))
        if kind == "delegate":
            yield _of_delegate(cost, delegate or 0, plan)
        else:
            yield _of_kernel(cost, plan)


def _times(
    calls: Sequence[Any], known: Sequence[Step], plan: MethodPlan
) -> Iterator[tuple[str, float]]:
    """Partitions and portable nodes with their milliseconds."""
    kernels: dict[str, list[float]] = {}
    partitions: dict[int, float] = {}
    for event in sorted(calls, key=lambda event: instruction_of(event)):
        step, ms = _step(event, known), _median_ms(event)
        if step.delegate is not None:
            partitions[step.delegate] = partitions.get(step.delegate, 0.0) + ms
        elif step.kind == "kernel":
            kernels.setdefault(_kernel_base(step.name), []).append(ms)
    for position, ms in partitions.items():
        if position < len(plan.delegates):
            yield plan.delegates[position], ms
    nodes: dict[str, list[str]] = {}
    for entry in plan.ledger:
        if entry.falls_back:
            nodes.setdefault(_base(entry), []).append(entry.node)
    for base, times in kernels.items():
        # Both are in graph order; where ExecuTorch added or left out a call, which is which is not
        # known.
        if len(times) == len(nodes.get(base, ())):
            yield from zip(nodes[base], times, strict=True)


def _call(event: Any, known: Sequence[Step], plan: MethodPlan | None) -> Call:
    step = _step(event, known)
    named = plan.delegates[step.delegate] if plan and step.delegate is not None else step.name
    return Call(step.chain, step.index, named, _median_ms(event))


def _step(event: Any, known: Sequence[Step]) -> Step:
    """The instruction that an event is about."""
    return known[instruction_of(event)]


def _median_ms(event: Any) -> float:
    # The first run warms up.
    times = sorted(event.perf_data.raw[1:] or event.perf_data.raw)
    return float(times[len(times) // 2])


def _of_delegate(cost: Cost, position: int, plan: MethodPlan | None) -> Cost:
    name = plan.delegates[position] if plan and position < len(plan.delegates) else ""
    found = [p for p in plan.partitions if p.name == name] if plan else []
    if not plan or not found:
        return evolve(cost, name=f"{cost.name} #{position}")
    nodes = set(found[0].nodes)
    modules = dict.fromkeys(e.module for e in plan.ledger if e.node in nodes and e.module)
    return evolve(cost, name=name, plugin=found[0].plugin, modules=tuple(modules))


def _of_kernel(cost: Cost, plan: MethodPlan | None) -> Cost:
    base = _kernel_base(cost.name)
    entries = [e for e in plan.ledger if e.falls_back and _base(e) == base] if plan else []
    reasons = dict.fromkeys(
        f"{verdict.plugin}: {verdict.text or verdict.code}"
        for entry in entries
        for verdict in entry.verdicts
    )
    modules = dict.fromkeys(entry.module for entry in entries if entry.module)
    return evolve(cost, plugin="portable", modules=tuple(modules), reasons=tuple(reasons))


def _kernel_base(name: str) -> str:
    return name.partition(".")[0].replace("::", ".")


def _base(entry: Entry) -> str:
    return entry.op.rpartition(".")[0]


def _spans(events: Sequence[Any], known: Sequence[Step]) -> Iterator[Span]:
    """The events of the last run, with the instructions by their names."""
    starts = [event.start_time[-1] for event in events if event.start_time]
    first = min(starts, default=0)
    for event in events:
        if not event.start_time:
            continue
        call = event.name in _CALLS
        yield Span(
            name=_step(event, known).name if call else event.name,
            start_us=(event.start_time[-1] - first) / 1000,
            length_us=event.perf_data.raw[-1] * 1000,
            within=not call and event.name != "Method::execute",
        )
