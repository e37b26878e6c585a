"""Reductions: from a model that fails to a script and a report that others can act on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram

from etdev import EtdevError, VerifyError
from etdev.app import EagerMethod, files
from etdev.runtime.child import Child
from etdev_reduce.case import Case, Recording
from etdev_reduce.failure import HANG, RIGHT, WRONG, Failure
from etdev_reduce.flows import PORTABLE, Etdev, Executorch, Flow
from etdev_reduce.report import report
from etdev_reduce.script import problem, script
from etdev_reduce.search import Search, Spent, trying
from etdev_reduce.worker import tolerance_of

Tell = Callable[[str], None]
# Calls that a method is tried with, if no inputs are given.
_CALLS = 3
# Time in seconds for the values of a case, and for the flows that it is tried in, at the end.
_LAST_S = 120.0


@frozen(eq=False)
class Reduction:
    """The result of a reduction.

    Args:
        case: The smallest case.
        failure: How it fails.
        first: How the whole model fails.
        flow: The flow that both went.
        flows: What becomes of the case in each flow, by name.
        trials: Number of the cases that were tried.
        seconds: Time of the search.
        finished: False if the time was up, or Ctrl-C ended it.
        interrupted: Ctrl-C ended it.
        nodes: Number of nodes of the whole model.
    """

    case: Case
    failure: Failure
    first: Failure
    flow: Flow
    flows: Mapping[str, str]
    trials: int
    seconds: float
    finished: bool
    interrupted: bool
    nodes: int

    @property
    def title(self) -> str:
        """The fault in one line."""
        ops = dict.fromkeys(str(n.target) for n in self.case.computing or self.case.nodes)
        what = {"wrong": "wrong values", "slow": "slow"}.get(self.failure.kind, self.failure.kind)
        maker = (
            self.flow.partitioner.partition("(")[0]
            if isinstance(self.flow, Executorch)
            else "etdev"
        )
        return f"{maker or 'Portable kernels'}: {what} of {', '.join(ops)}"

    def write(self, folder: Path, keep_weights: bool = False) -> Path:
        """Write the script, run it in a fresh process, and write the report.

        Raises:
            EtdevError: The failure needs values of the user's model, and they may not be written;
                or the script does not fail by itself.
        """
        stored = bool(self.case.captured)
        if stored and not keep_weights:
            names = ", ".join(self.case.captured[:3])
            what = f"fails with the values of {names} alone, not with values made of a seed"
            raise EtdevError("reduce", what, "give --keep-weights to write them to model.pt2")
        ours = isinstance(self.flow, Etdev)
        path = folder / ("repro_etdev.py" if ours else "repro.py")
        folder.mkdir(parents=True, exist_ok=True)
        if stored:
            torch.export.save(self._program(), folder / "model.pt2")
        tolerance = self._tolerance() if self.failure.kind == WRONG else 0.0
        text = script(self.title, self.case.source(), self.flow, self.failure, tolerance, stored)
        files.write_text(path, text)
        if why := problem(path, self.failure):
            raise EtdevError(str(path), f"does not fail by itself: {why}", "report this to etdev")
        needs = "torch, ExecuTorch and etdev" if ours else "nothing but torch and ExecuTorch"
        text = report(
            self.title, text, kind=self.failure.kind, detail=self.failure.detail,
            cause=self.failure.cause, flows=self.flows, needs=needs,
        )  # fmt: skip
        files.write_text(folder / "report.md", text)
        return path

    def _program(self) -> ExportedProgram:
        scope: dict[str, Any] = {"torch": torch, "values": self.case.kept()}
        exec(f"import math, operator\n{self.case.source()}", scope)
        with torch.no_grad():
            shapes = scope["dynamic_shapes"]
            return torch.export.export(scope["model"], scope["calls"][0], dynamic_shapes=shapes)

    def _tolerance(self) -> float:
        first = self.case.recording.calls[self.case.calls[0]]
        outputs = [first[node.name] for node in self.case.outputs]
        return tolerance_of({v.dtype for v in outputs if isinstance(v, torch.Tensor)})


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
        methods: The methods of the model; the first that fails is reduced.
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
    start, tried = time.monotonic(), dict[str, None]()
    with files.scratch() as folder:
        search = Search(
            Path(folder), start + budget_s, tell, tolerance, slow, limit_s, child or trying()
        )
        try:
            for name, case in _first_cases(methods, inputs):
                tell(f"method {name}: {_nodes(len(case.nodes))}")
                for flow in flows:
                    found = search.tried(case, flow)
                    if found.is_failure:
                        search.start(case, flow, found)
                        return _reduced(search, flows, start)
                    tried[f"{name} is {found} in {flow.name}"] = None
        except Spent:
            raise EtdevError("reduce", "had no time", "give a longer --budget") from None
    raise EtdevError("reduce", f"nothing fails: {'; '.join(tried)}", "give the inputs that fail")


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count != 1)}"


def _first_cases(
    methods: Mapping[str, EagerMethod], inputs: Sequence[Any] | None
) -> Iterator[tuple[str, Case]]:
    """Yield methods as cases: one call without state, then with it, then several calls."""
    for name, method in methods.items():
        program, given = method.program, [inputs or method.example()]
        if inputs is None:
            with suppress(VerifyError):
                given += [call.inputs for call in method.calls([], _CALLS)][1:]
        plain = program
        with suppress(Exception):
            plain = program.run_decompositions({})
        function, whole = Recording.of(plain, given), Recording.of(program, given)
        every = tuple(range(len(given)))
        yield from ((name, Case(function, function.nodes, calls=(call,))) for call in every)
        yield name, Case(whole, whole.nodes)
        if len(every) > 1:
            yield name, Case(whole, whole.nodes, calls=every, dynamic=whole.is_dynamic)


def _reduced(search: Search, flows: Sequence[Flow], start: float) -> Reduction:
    whole, first = search.best, search.failure
    ended: BaseException | None = None
    search.tell(str(first))
    try:
        search.run()
    except (Spent, KeyboardInterrupt) as error:
        ended, search.deadline = error, time.monotonic() + _LAST_S
        search.tell("values of a seed for the smallest program so far")
        with suppress(Spent, KeyboardInterrupt):
            search.fill()
    case, failure, flow = search.best, search.failure, search.flow
    results, search.deadline = {flow.name: str(failure)}, time.monotonic() + _LAST_S
    others = [evolve(own, in_two=True) for own in flows if isinstance(own, Executorch)]
    for other in (*flows, *others, PORTABLE):
        if not ended and other.name not in results and failure.kind != HANG:
            found = search.tried(case, other)
            results[other.name] = "right" if found.kind == RIGHT else str(found)
            if found.is_like(search.failure) and isinstance(other, Executorch) and not other.in_two:
                # Without etdev, and at last without a backend.
                flow, failure = other, found
    return Reduction(
        case=case,
        failure=failure,
        first=first,
        flow=flow,
        flows=results,
        trials=search.trials,
        seconds=time.monotonic() - start,
        finished=ended is None,
        interrupted=isinstance(ended, KeyboardInterrupt),
        nodes=len(whole.nodes),
    )
