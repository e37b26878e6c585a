"""Verification: a .pte is called like the model in eager PyTorch, and must give the same values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from torch.export import ExportedProgram

from etdev.edge.reference import Reference, shared_buffers
from etdev.errors import EtdevError, VerifyError, first_line, shown
from etdev.pte import ptd
from etdev.pte.artifact import MethodArtifact
from etdev.pte.read import read
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.runtime.bisect import bisection
from etdev.runtime.child import Outcome
from etdev.runtime.compare import Tolerance, mismatch, steps_of, tolerance_of
from etdev.runtime.decision import Decision
from etdev.runtime.inputs import method_of, prepared
from etdev.runtime.run import run_series
from etdev.runtime.runners import PYTHON, Runner, verifying
from etdev.runtime.sessions import Call, Session, interleaved, is_random, session_of
from etdev.schema.stages import Listener

STEPS = 3


@frozen
class EdgeCall:
    """A call with `nan`, `inf` or another edge value among its inputs, or with a size of 0.

    Args:
        problem: How it departs from eager PyTorch; empty if it agrees.
    """

    method: str
    value: str
    problem: str = ""


@frozen
class Verification:
    """Result of a verification.

    Args:
        calls: Number of calls that agree with eager PyTorch, over all methods.
        tolerance: The largest relative error that any method was allowed.
        unverified: The methods and the state that were not verified, and why:
            `method 'forward': it draws random numbers`.
        edges: The calls at edge values, which are not among `calls`.
        runners: The runners that made the calls.
    """

    calls: int
    tolerance: float
    unverified: tuple[str, ...]
    edges: tuple[EdgeCall, ...] = ()
    runners: tuple[str, ...] = ()

    def require(self, cure: str) -> None:
        """Reject a verification that left out a method or state."""
        if self.unverified:
            raise VerifyError("not verified", "; ".join(self.unverified), cure)


@frozen(eq=False)
class _Method:
    """A method of the .pte, and the calls that it has to repeat."""

    facts: MethodArtifact
    session: Session
    tolerance: Tolerance
    steps: Sequence[float]

    def problem(self, outcome: Outcome, step: int, call: Call) -> str | None:
        """Return how a call departs from eager PyTorch."""
        if step >= len(outcome.values):
            return outcome.failure
        ran = outcome.values[step]
        return mismatch(ran.outputs, call.outputs, self.tolerance, steps=self.steps) or mismatch(
            ran.inputs, call.after, self.tolerance, "input after the call,"
        )


@frozen(eq=False)
class Verifier:
    """Comparison of a .pte with eager PyTorch; `Lowered.verify` explains the options.

    Args:
        decided: Decision of the .pte, which is used to name the delegate or kernel that is wrong.
        plugins: Plugins that know which dtype the backends of the .pte round float32 to.
        method: Verify this method alone; None verifies all.
        runner: Name of the runner that makes the calls; None takes those of `verifying`.
    """

    path: Path
    references: Mapping[str, Reference]
    steps: int = STEPS
    edges: bool = False
    tolerance: float | None = None
    data: Path | None = None
    decided: Decision | None = None
    listener: Listener | None = None
    plugins: Sequence[Plugin] = ()
    method: str | None = None
    runner: str | None = None
    sessions: dict[str, Session] = field(factory=dict, init=False)

    def verify(self, inputs: Any = None) -> Verification:
        """Run all methods, their calls mixed at random, and compare each with its own session."""
        if type(self.steps) is not int or self.steps < 1:
            raise VerifyError("steps", f"is {shown(self.steps)}", "give how many calls, 1 or more")
        artifact = read(self.path)
        data = self.data or ptd.find(artifact, self.path)
        runners = verifying(artifact, self.plugins, self.runner)
        methods, unverified = dict[str, _Method](), []
        for name, reference in self.references.items():
            if self.method not in (None, name):
                continue
            facts = method_of(artifact, name)
            self._say(name)
            given = reference.given(inputs.get(name) if isinstance(inputs, Mapping) else inputs)
            if reason := _unverifiable(facts, reference, runners[0]):
                unverified.append(f"method {name!r}: {reason}")
                continue
            try:
                session = session_of(reference, given, self.steps, resized=True)
            except EtdevError as error:
                if given:
                    raise
                unverified.append(f"method {name!r}: {error.what}")
                continue
            self.sessions[name] = session
            program = reference.program
            outputs = [name for name in program.graph_signature.user_outputs if name is not None]
            steps = steps_of(program, outputs) if self.tolerance is None else []
            if not session.is_conclusive:
                unverified.append(f"method {name!r}: it returns no finite value")
                continue
            method = _Method(facts, session, self._tolerance(facts, program), steps)
            session.try_edges(self.edges)
            methods[name] = method
        unverified += (
            f"buffer {shared.target!r}, which {shared.writer!r} writes and {shared.other!r} has, "
            "too: in a .pte each has its own"
            for shared in shared_buffers({n: r.program for n, r in self.references.items()})
            if self.method in (None, shared.writer, shared.other)
        )
        edges = dict[tuple[str, str], EdgeCall]()
        for run in runners:
            for edge in self._compare(methods, data, run):
                known = edges.setdefault((edge.method, edge.value), edge)
                edges[edge.method, edge.value] = known if known.problem else edge
        calls = sum(not call.edge for m in methods.values() for call in m.session.calls)
        largest = max((method.tolerance.relative for method in methods.values()), default=0.0)
        names = tuple(run.name for run in runners)
        return Verification(calls, largest, tuple(unverified), tuple(edges.values()), names)

    def _compare(
        self, methods: Mapping[str, _Method], data: Path | None, runner: Runner
    ) -> Iterator[EdgeCall]:
        """Run the calls of all methods in one loaded program; yield those at edge values."""
        left = interleaved({name: method.session for name, method in methods.items()})
        while left:
            self._say(", ".join(methods), f"{len(left)} calls")
            series = [(methods[name].facts, call.inputs) for name, call in left]
            outcome = run_series(self.path, series, data, runner=runner)
            for step, (name, call) in enumerate(left[: len(outcome.values) + 1]):
                problem = methods[name].problem(outcome, step, call)
                if problem and runner is not PYTHON:
                    problem = f"in runner {runner.name}, {problem}"
                if problem and (self.edges or not call.edge):
                    own = [c for known, c in left[: step + 1] if known == name]
                    where = f"at {call.edge}" if call.edge else f"step {len(own) - 1}"
                    failed = step == len(outcome.values)
                    if len(methods) > 1 and self._right_alone(methods[name], own, data, runner):
                        cause = "; it is right by itself, so calls of another method disturb it"
                    else:
                        cause = self._cause(methods[name], own, failed, runner)
                    cure = (
                        "don't ship it; leave out the plugin or op that is at fault, or report this"
                    )
                    raise VerifyError(f"method {name!r}", f"{where}: {problem}{cause}", cure)
                if call.edge:
                    yield EdgeCall(name, call.edge, problem or "")
            # After a failure the states are lost.
            rest = left[len(outcome.values) + 1 :]
            left = [(n, call) for n, call in rest if not methods[n].session.reference.state]

    def _tolerance(self, facts: MethodArtifact, program: ExportedProgram) -> Tolerance:
        backends = sorted({delegate.backend_id for delegate in facts.delegates})
        answered = [answers.rounds_to(self.plugins, backend) for backend in backends]
        known = tolerance_of(program, [dtype for dtype in answered if dtype])
        return known if self.tolerance is None else Tolerance(self.tolerance, known.steps)

    def _right_alone(
        self, method: _Method, calls: Sequence[Call], data: Path | None, runner: Runner
    ) -> bool:
        series = [(method.facts, call.inputs) for call in calls]
        outcome = run_series(self.path, series, data, runner=runner)
        return not any(method.problem(outcome, step, call) for step, call in enumerate(calls))

    def _cause(self, method: _Method, calls: Sequence[Call], failed: bool, runner: Runner) -> str:
        """Name what makes the last of some calls of a method wrong or fail."""
        if self.decided is None:
            return ""
        name = method.facts.name
        self._say(name, "search for the cause")
        try:
            series = [evolve(call, inputs=prepared(method.facts, call.inputs)) for call in calls]
            found = bisection(self.path, self.decided, name, series, runner)
            cause = found.culprit(method.tolerance, failed)
        except Exception as error:
            return f"; the cause can't be searched ({first_line(error)})"
        alone = "every delegate and every portable kernel is right by itself"
        if found.skipped:
            alone += f", except for those that can't be called alone: {', '.join(found.skipped)}"
        return f"; {cause or alone}"

    def _say(self, name: str, detail: str = "") -> None:
        if self.listener:
            self.listener("verify", f"{name} {detail}".rstrip())


def _unverifiable(facts: MethodArtifact, reference: Reference, runner: Runner) -> str | None:
    """Return why a method can't be verified by a runner; None if it can."""
    try:
        lacking = dict(zip(("backend", "kernel"), runner.missing(facts), strict=True))
    except ImportError:
        return "ExecuTorch is built without its runtime for Python"
    for kind, names in lacking.items():
        if names:
            return f"the runtime has no {kind} {', '.join(names)}"
    return "it draws random numbers" if is_random(reference) else None
