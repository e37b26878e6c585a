"""Reductions: from a model that fails to a script and a report that others can act on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram

from etdev import EtdevError
from etdev.app import EagerMethod, files
from etdev.graph import op_name
from etdev.runtime.child import Child
from etdev_reduce.case import Case, Cases, kept
from etdev_reduce.failure import HANG, RIGHT, SLOW, WRONG, Failure
from etdev_reduce.flows import PORTABLE, Flow
from etdev_reduce.recording import Recording
from etdev_reduce.report import report
from etdev_reduce.script import MODEL, problem, script, shares_state
from etdev_reduce.search import Search, Spent, trying

Tell = Callable[[str], None]
# One op for all steps of a layer.
_RECURRENT = (
    *(torch.ops.aten.gru.input, torch.ops.aten.lstm.input),
    *(torch.ops.aten.rnn_tanh.input, torch.ops.aten.rnn_relu.input),
)
# Ops that a title names.
_NAMED = 5
# Time in seconds for the values of a case, and for the flows that it is tried in, at the end.
_LAST_S = 120.0


@frozen(eq=False)
class Reduction:
    """The result of a reduction.

    Args:
        cases: The smallest cases by method.
        alike: Flows in which they fail alike, and how; the last one is written.
        flows: What becomes of them in each flow, by name.
        trials: Number of the trials.
        seconds: Time of the search.
        finished: False if the time was up, or Ctrl-C ended it.
        interrupted: Ctrl-C ended it.
        nodes: Number of nodes of the whole model.
    """

    cases: Cases
    alike: list[tuple[Flow, Failure]]
    flows: dict[str, str]
    trials: int
    seconds: float
    finished: bool
    interrupted: bool
    nodes: int

    @property
    def flow(self) -> Flow:
        """The flow that the script goes."""
        return self.alike[-1][0]

    @property
    def failure(self) -> Failure:
        """The failure that the script shows."""
        return self.alike[-1][1]

    @property
    def left(self) -> list[str]:
        """The ops that are left."""
        return [op_name(node) for case in self.cases.values() for node in case.nodes]

    @property
    def computing(self) -> list[str]:
        """The ops that compute, or all if there are only views, casts and quantisers."""
        return [op_name(node) for case in self.cases.values() for node in case.computing]

    @property
    def captured(self) -> list[str]:
        """Names of the values of the user's model that they need."""
        return [name for case in self.cases.values() for name in case.captured]

    @property
    def title(self) -> str:
        """The fault in one line."""
        kind = self.failure.kind
        what = {WRONG: "wrong values", SLOW: "slowness"}.get(kind, kind)
        ops = [*dict.fromkeys(self.computing)]
        more = f" and {len(ops) - _NAMED} others" if len(ops) > _NAMED else ""
        return f"{self.flow.maker}: {what} of {', '.join(ops[:_NAMED])}{more}"

    def write(self, folder: Path, keep_weights: bool = False) -> Path:
        """Write the script, run it in a fresh process, and write the report.

        Raises:
            EtdevError: The failure needs values of the user's model, and they may not be written;
                or the script does not fail by itself.
        """
        if self.captured and not keep_weights:
            names = ", ".join(self.captured[:3])
            what = f"fails with the values of {names} alone, not with values made of a seed"
            cure = "give --keep-weights to write them to model.pt2"
            if not self.finished:
                what = f"had no time to replace the values of {names} by those of a seed"
                cure = f"give a longer --budget, or {cure.removeprefix('give ')}"
            raise EtdevError("reduce", what, cure)
        folder.mkdir(parents=True, exist_ok=True)
        if self.captured:
            held = torch.nn.Module()
            for name, value in kept(self.cases).items():
                held.register_buffer(name, value)
            held.forward = lambda: torch.zeros(1)
            torch.export.save(torch.export.export(held, ()), folder / MODEL)
        while why := problem(path := self._written(folder), self.failure):
            if len(self.alike) == 1:
                what = f"does not fail by itself: {why}"
                raise EtdevError(str(path), what, "report this to etdev")
            # It failed only beside what another flow had imported.
            path.unlink()
            self.flows.pop(self.alike.pop()[0].name)
        text = report(
            self.title, path.read_text(), kind=self.failure.kind, detail=self.failure.detail,
            cause=self.failure.cause, flows=self.flows,
        )  # fmt: skip
        files.write_text(folder / "report.md", text)
        return path

    def _written(self, folder: Path) -> Path:
        path = folder / ("repro_etdev.py" if self.flow.is_etdev else "repro.py")
        files.write_text(path, script(self.title, self.cases, self.flow, self.failure))
        return path


def reduce(  # noqa: PLR0913 (settings, by keyword)
    methods: Mapping[str, EagerMethod],
    flows: Sequence[Flow],
    *,
    budget_s: float = 600.0,
    tolerance: float | None = None,
    slow: float = 0.0,
    limit_s: float = 120.0,
    inputs: Sequence[Any] | None = None,
    tell: Tell = lambda text: None,
    child: Child | None = None,
) -> Reduction:
    """Find the smallest program that fails as a model does.

    Args:
        methods: The methods of the model; the first that fails is reduced, or all that fail only in
            one file.
        flows: The flows to try; the first in which the model fails is taken, and at last one of
            ExecuTorch's own in which the smallest program fails in the same way.
        budget_s: Time of the search in seconds; the smallest program so far is the result then.
        tolerance: Largest error relative to the largest value of an output; None goes by dtype.
        slow: Count it as a failure if portable kernels are this many times as fast.
        limit_s: Time in seconds after which a program hangs.
        inputs: Flat inputs of a call instead of the example's.
        tell: Called with each step.
        child: The process of trials.

    Raises:
        EtdevError: The model does not fail.
    """
    start, tried = time.monotonic(), list[str]()
    groups = [[name] for name in methods] + [[*methods]] * (len(methods) > 1)
    search = Search(start + budget_s, tell, tolerance, slow, limit_s, child or trying())

    @cache
    def called(name: str, count: int | None) -> Sequence[Any]:
        method = methods[name]
        return method.calls([inputs or method.example()] if count else [], count)

    # The example's call alone takes a fraction of the time of all those of a verification.
    for count, group, flow in product((1,) if inputs else (1, None), groups, flows):
        names = " and ".join(group)
        tell(f"{'the example' if count else 'all calls'} of {names} in {flow.name}")
        calls = {name: called(name, count) for name in group}
        try:
            found = _begun(search, {name: methods[name].program for name in group}, calls, flow)
        except Spent:
            raise EtdevError("reduce", "had no time", "give a longer --budget") from None
        if found.is_failure:
            return _reduced(search, flows, start)
        if not count or inputs:
            tried.append(f"{names} {'is' if len(group) == 1 else 'are'} {found} in {flow.name}")
    raise EtdevError("reduce", f"nothing fails: {'; '.join(tried)}", "give the inputs that fail")


def _begun(
    search: Search,
    programs: Mapping[str, ExportedProgram],
    calls: Mapping[str, Sequence[Any]],
    flow: Flow,
) -> Failure:
    """Try methods on calls of EagerMethods; if they fail, begin the search with the fewest."""
    every: Mapping[str, Sequence[int]] = {name: range(len(calls[name])) for name in programs}
    first = _cases(programs, calls, every, inner=False)
    if shares_state(first) and not flow.is_etdev:
        return Failure(RIGHT, detail="ExecuTorch's flow gives each method a state of its own")
    found, ways = search.tried(first, flow), [programs]
    if not found.is_failure:
        return found
    # As functions, without states, and recurrent layers as their steps, if these fail alike.
    used = {node.target for own in programs.values() for node in own.graph.nodes}
    usual = torch.export.default_decompositions()
    steps = {op: usual[op] for op in _RECURRENT if op in used}
    for table in ({}, steps) if steps else ({},):
        with suppress(Exception):
            ways.insert(0, {name: own.run_decompositions(table) for name, own in programs.items()})
    last = found.call if len(programs) == 1 else 0
    few = [dict.fromkeys(programs, numbers) for numbers in ([last], range(last + 1))]
    for numbers, own in product([*few, every], ways):
        cases = _cases(own, calls, numbers)
        again = search.tried(cases, flow)
        if again.is_like(found):
            search.start(cases, flow, again)
            return again
    return Failure(RIGHT, detail="it failed once, and not again")


def _cases(
    programs: Mapping[str, ExportedProgram],
    calls: Mapping[str, Sequence[Any]],
    numbers: Mapping[str, Sequence[int]],
    inner: bool = True,
) -> Cases:
    """Return the whole programs as cases of some calls, with the values of their nodes or not."""
    several, cases = len(programs) > 1, dict[str, Case]()
    for name, program in programs.items():
        few = calls[name][: max(numbers[name]) + 1]
        inputs, drawn = [call.inputs for call in few], [call.drawn for call in few]
        kept = numbers[name] if inner else ()
        recording = Recording(program, inputs, kept, drawn, f"{name}_" * several)
        dynamic = bool(program.range_constraints)
        # A single method can be any.
        cases[name if several else "forward"] = Case(
            recording, recording.nodes, calls=tuple(numbers[name]), dynamic=dynamic
        )
    return cases


def _reduced(search: Search, flows: Sequence[Flow], start: float) -> Reduction:
    nodes, ended = sum(len(case.nodes) for case in search.best.values()), None
    search.tell(str(search.failure))
    try:
        search.run()
    except (Spent, KeyboardInterrupt) as error:
        ended, search.deadline = error, time.monotonic() + _LAST_S
        search.tell("values of a seed for the smallest program so far")
        with suppress(Spent, KeyboardInterrupt):
            search.fill()
    cases, alike = search.best, [(search.flow, search.failure)]
    results = {search.flow.name: str(search.failure)}
    search.deadline = time.monotonic() + _LAST_S
    # Those with fewer components come last.
    others = [own for given in flows for own in (*given.older, given, *given.variants)]
    for other in (*others, PORTABLE) if not ended and search.failure.kind != HANG else ():
        if other.is_etdev or not shares_state(cases):
            found = search.tried(cases, other)
            results[other.name] = "right" if found.kind == RIGHT else str(found)
            if found.is_like(search.failure):
                alike.append((other, found))
    return Reduction(
        cases=cases,
        alike=alike,
        flows=results,
        trials=search.trials,
        seconds=time.monotonic() - start,
        finished=ended is None,
        interrupted=isinstance(ended, KeyboardInterrupt),
        nodes=nodes,
    )
