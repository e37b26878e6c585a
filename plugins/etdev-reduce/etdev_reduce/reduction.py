"""Reductions: from a model that fails to a script and a report that others can act on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram

from etdev import EtdevError, Lowerer
from etdev.app import EagerMethod, files
from etdev.runtime.child import Child
from etdev.runtime.ending import ending
from etdev_reduce.case import Case, Recording
from etdev_reduce.failure import HANG, RIGHT, WRONG, Failure
from etdev_reduce.flows import PORTABLE, Etdev, Executorch, Flow
from etdev_reduce.forks import forked
from etdev_reduce.report import report
from etdev_reduce.script import MODEL, problem, script
from etdev_reduce.search import Search, Spent, ddmin, trying

Tell = Callable[[str], None]
# Time in seconds for the values of a case, and for the flows that it is tried in, at the end.
_LAST_S = 120.0


@frozen(eq=False)
class Reduction:
    """The result of a reduction.

    Args:
        case: The smallest case.
        failure: How it fails.
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
        ops = dict.fromkeys(str(n.target) for n in self.case.computing)
        what = "wrong values" if self.failure.kind == WRONG else self.failure.kind
        return f"{self.flow.maker}: {what} of {', '.join(ops)}"

    def write(self, folder: Path, keep_weights: bool = False) -> Path:
        """Write the script, run it in a fresh process, and write the report.

        Raises:
            EtdevError: The failure needs values of the user's model, and they may not be written;
                or the script does not fail by itself.
        """
        captured = self.case.captured
        if captured and not keep_weights:
            names = ", ".join(captured[:3])
            what = f"fails with the values of {names} alone, not with values made of a seed"
            raise EtdevError("reduce", what, "give --keep-weights to write them to model.pt2")
        ours = isinstance(self.flow, Etdev)
        path = folder / ("repro_etdev.py" if ours else "repro.py")
        folder.mkdir(parents=True, exist_ok=True)
        if captured:
            kept = torch.export.export(_Kept(self.case.kept()), ())
            torch.export.save(kept, folder / MODEL)
        text = script(self.title, self.case.source(), self.flow, self.failure)
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


class _Kept(torch.nn.Module):
    """A model of nothing but values, by their keys."""

    def __init__(self, values: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        for name, value in values.items():
            self.register_buffer(name, value)

    def forward(self) -> list[torch.Tensor]:
        return [value + 0 for value in self.buffers()]


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
        EtdevError: The model does not fail, or several methods fail only together.
    """
    start, tried = time.monotonic(), dict[str, None]()
    with files.scratch() as folder:
        search = Search(
            Path(folder), start + budget_s, tell, tolerance, slow, limit_s, child or trying()
        )
        try:
            for name, method in methods.items():
                calls = method.calls([inputs], 1) if inputs else method.calls([])
                for flow in flows:
                    tell(f"method {name} in {flow.name}")
                    found = _begun(search, method.program, calls, flow)
                    if found.is_failure:
                        return _reduced(search, flows, start)
                    tried[f"{name} is {found} in {flow.name}"] = None
        except Spent:
            raise EtdevError("reduce", "had no time", "give a longer --budget") from None
    if len(methods) > 1 and (own := next((f for f in flows if isinstance(f, Etdev)), None)):
        _try_together(methods, own, limit_s, tell)
    raise EtdevError("reduce", f"nothing fails: {'; '.join(tried)}", "give the inputs that fail")


def _begun(search: Search, program: ExportedProgram, calls: Sequence[Any], flow: Flow) -> Failure:
    """Try a program on calls of an EagerMethod; if it fails, begin the search with the fewest."""
    inputs, drawn = [call.inputs for call in calls], [call.drawn for call in calls]

    def case(own: ExportedProgram, numbers: Sequence[int], inner: Sequence[int]) -> Case:
        recording = Recording.of(own, inputs[: max(numbers) + 1], inner, drawn)
        return Case(recording, recording.nodes, calls=tuple(numbers), dynamic=dynamic)

    every, dynamic = range(len(calls)), bool(program.range_constraints)
    found = search.tried(case(program, every, ()), flow)
    if found.is_failure:
        programs, last = [program], [found.call]
        upto = range(found.call + 1) if found.kind == WRONG else every
        with suppress(Exception):
            # As a function, without state, if that fails alike.
            programs.insert(0, program.run_decompositions({}))
        for numbers, own in product((last, upto, every), programs):
            first = case(own, numbers, numbers)
            again = search.tried(first, flow)
            if again.is_like(found):
                search.start(first, flow, again)
                return again
    return found


def _try_together(
    methods: Mapping[str, EagerMethod], flow: Etdev, limit_s: float, tell: Tell
) -> None:
    """Lower several methods into one file, and verify that.

    Raises:
        EtdevError: They fail together, and each is right by itself.
    """
    problems = dict[tuple[str, ...], str]()

    def fails(names: Sequence[str]) -> bool:
        key = tuple(names)
        if key not in problems:
            tell(f"methods {', '.join(names)} in one file")
            given = {name: methods[name].source for name in names}
            ended = forked(partial(_verify, given, flow), limit_s * len(names))
            died = "it does not end" if ended.hangs else f"the process {ending(ended.code)}"
            (problems[key],) = ended.result or (died,)
        return bool(problems[key])

    if fails([*methods]):
        names = ddmin([*methods], fails)
        own = f"methods {' and '.join(names)} are right by themselves and fail in one file"
        cure = "report the model with these methods; reduce takes one method apart at a time"
        raise EtdevError("reduce", f"{own}: {problems[tuple(names)]}", cure)


def _verify(methods: Mapping[str, Any], flow: Etdev, answer: Callable[[Any], None]) -> None:
    """Answer with how methods fail in one file, or with an empty text if they don't."""
    # The threads of the process that was forked are not here.
    torch.set_num_threads(1)
    problem = ""
    try:
        Lowerer(**flow.settings).lower(methods).verify()
    except EtdevError as error:
        problem = error.what
    answer((problem,))


def _reduced(search: Search, flows: Sequence[Flow], start: float) -> Reduction:
    whole, ended = search.best, None
    search.tell(str(search.failure))
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
        flow=flow,
        flows=results,
        trials=search.trials,
        seconds=time.monotonic() - start,
        finished=ended is None,
        interrupted=isinstance(ended, KeyboardInterrupt),
        nodes=len(whole.nodes),
    )
