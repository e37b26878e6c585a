"""Verification: a .pte is called like the model in eager PyTorch, and must give the same values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from etdev.edge.reference import Reference
from etdev.edge.shared_state import shared_states
from etdev.errors import EtdevError, SourceError, VerifyError, first_line, shown
from etdev.lowering.lowering import Lowering
from etdev.pte import ptd
from etdev.pte.artifact import Artifact
from etdev.pte.read import read
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.runtime.child import ChildResult
from etdev.runtime.inputs import prepared
from etdev.runtime.run import run_series
from etdev.runtime.runners import PYTHON, Runner, verifying
from etdev.schema.pins import PORTABLE
from etdev.schema.stopwatch import Listener
from etdev.schema.target import Target
from etdev.schema.wording import counted
from etdev.verify.bisect import bisection
from etdev.verify.inputs import DRAWS
from etdev.verify.oracle import EagerCall, Oracle, is_random
from etdev.verify.session import Session, interleaved
from etdev.verify.tolerance import TINY, Tolerance
from etdev.verify.verification import Coverage, EdgeCall, Verification

STEPS = 3
# Drawn calls of a method take about this long together; two are made however long they take.
_DRAWN_S = 0.015
_CURE = (
    "don't ship it; leave out the plugin or op at fault, or report what `etdev reduce "
    "net.py:model{chosen} -o fault` finds, with a function net.py:model that returns the model "
    "and its inputs"
)
# The calls of all methods, in the order in which the .pte repeats them.
_Series = Sequence[tuple[Session, EagerCall]]


@frozen(eq=False, slots=False)
class Verifier:
    """Comparison of a .pte with eager PyTorch; `Lowered.verify` explains the options.

    Args:
        decided: Lowering of the .pte, which is used to name the delegate or kernel that is wrong.
        plugins: Plugins that know which dtype the backends of the .pte round float32 to.
        method: Verify this method alone; None verifies all.
        runner: Name of the runner that makes the calls; None takes those of `verifying`.
        target: Where they are made; None for this machine.
        sessions: The calls in eager PyTorch, by method.
    """

    path: Path
    references: Mapping[str, Reference]
    steps: int = STEPS
    edges: bool = False
    tolerance: float | None = None
    data: Path | None = None
    decided: Lowering | None = None
    listener: Listener | None = None
    plugins: Sequence[Plugin] = ()
    method: str | None = None
    runner: str | None = None
    target: Target | None = None
    sessions: dict[str, Session] = field(factory=dict, init=False)

    @cached_property
    def artifact(self) -> Artifact:
        """The contents of the .pte."""
        return read(self.path)

    def verify(self, inputs: Any = None) -> Verification:
        """Run all methods, their calls mixed at random, and compare each with its own session."""
        if type(self.steps) is not int or self.steps < 1:
            raise VerifyError("steps", f"is {shown(self.steps)}", "give how many calls, 1 or more")
        runners = verifying(self.artifact, self.plugins, self.runner, self.target)
        names = [*chain(*self._groups)]
        own = inputs if isinstance(inputs, Mapping) else dict.fromkeys(names, inputs)
        given = {name: self.references[name].given(own.get(name)) for name in names}
        # Why methods are not verified, by name; empty for those that are.
        reasons = {name: self._unverifiable(name, runners[0]) for name in given}
        self.sessions.update(self._sessions(given, reasons))
        series = self._play(reasons)
        reasons.update(self._inconclusive(reasons))
        compared = [session for name, session in self.sessions.items() if not reasons[name]]
        series = [(session, call) for session, call in series if session in compared]
        for session in compared:
            series += [(session, call) for call in session.play_edges(self.edges)]
        edges = dict[tuple[str, str], EdgeCall]()
        for runner in runners:
            for edge in self._compare(series, runner):
                known = edges.setdefault((edge.method, edge.value), edge)
                edges[edge.method, edge.value] = known if known.problem else edge
        reasons.update({session.name: session.doubt for session in compared})
        verified = [session for session in compared if not reasons[session.name]]
        texts = (f"method {name!r}: {why}" for name, why in reasons.items() if why)
        return Verification(
            sum(not call.edge for session in verified for call in session.calls),
            max((session.tolerance.relative for session in verified), default=0.0),
            (*texts, *self._apart),
            tuple(edges.values()),
            tuple(runner.name for runner in runners),
            tuple(chain.from_iterable(session.remarks() for session in verified)),
            tuple(self._coverage(verified)),
        )

    def _coverage(self, sessions: Sequence[Session]) -> Iterator[Coverage]:
        """Yield what the calls of methods tried; state that another method reads was read."""
        unread = {session.name: session.unread(self._draws(session.name)) for session in sessions}
        read = {
            (method, name)
            for state in self.artifact.state
            if state.shared and any(n not in unread.get(m, [n]) for m, n in state.targets.items())
            for method, name in state.targets.items()
        }
        for session in sessions:
            names = [name for name in unread[session.name] if (session.name, name) not in read]
            calls = sum(not call.edge for call in session.calls)
            last = min(calls, self._draws(session.name))
            yield session.coverage.coverage(session.name, calls, names, last)

    def _draws(self, name: str) -> int:
        """Return how many draws a method has, by the time that a call is predicted to take."""
        if self.decided is None:
            return 0
        call_s = sum(entry.seconds for entry in self.decided.plan[name].ledger)
        return max(2, min(DRAWS, int(_DRAWN_S / max(call_s, 1e-9))))

    @cached_property
    def _groups(self) -> list[tuple[str, ...]]:
        """The methods to verify; those that share state in the .pte are in one group."""
        groups = [{name} for name in self.references]
        for state in self.artifact.state:
            if state.shared:
                joined = [group for group in groups if group & state.targets.keys()]
                groups = [group for group in groups if group not in joined]
                groups.append(set().union(*joined))
        return [
            tuple(name for name in self.references if name in group)
            for group in groups
            if self.method in (None, *group)
        ]

    @cached_property
    def _apart(self) -> list[str]:
        """The state that methods share in eager PyTorch, though the .pte does not say so."""
        known = [state.targets for state in self.artifact.state]
        programs = {name: reference.program for name, reference in self.references.items()}
        return [
            f"buffer {state}, which several methods share: in this .pte each has its own"
            for state in shared_states(programs)
            if state.targets not in known and self.method in (None, *state.targets)
        ]

    def _unverifiable(self, name: str, runner: Runner) -> str:
        """Return why a runner can't verify a method; empty if it can."""
        try:
            backends, kernels = runner.missing(self.artifact.method(name))
        except ImportError:
            return "ExecuTorch is built without its runtime for Python"
        for kind, lacking in (("backend", backends), ("kernel", kernels)):
            if lacking:
                return f"the runtime has no {kind} {', '.join(lacking)}"
        try:
            self.references[name].example()
        except SourceError as error:
            return error.what
        return "it draws random numbers" if is_random(self.references[name]) else ""

    def _sessions(
        self, given: Mapping[str, Sequence[Sequence[Any]]], reasons: Mapping[str, str]
    ) -> Iterator[tuple[str, Session]]:
        """Yield sessions, without calls yet, of the methods that can be verified."""
        apart = self._apart or not all(state.shared for state in self.artifact.state)
        # They may share state in Python, too.
        together = None if apart else Oracle(list(self.references.values()))
        for group in self._groups:
            oracle = together or Oracle([self.references[name] for name in group])
            for name in group:
                if not reasons[name]:
                    tolerance, reference = self._tolerance(name), self.references[name]
                    # The plan says what differs from PyTorch there.
                    ledger = self.decided.plan[name].ledger if self.decided else ()
                    huge = not any(entry.caveat for entry in ledger)
                    yield name, Session(reference, oracle, given[name], tolerance, huge)

    def _tolerance(self, name: str) -> Tolerance:
        delegates = self.artifact.method(name).delegates
        backends = sorted({delegate.backend_id for delegate in delegates})
        answered = [answers.rounds_to(self.plugins, backend) for backend in backends]
        rounded = [dtype for dtype in answered if dtype]
        try:
            return Tolerance.of(self.references[name].program, rounded, self.tolerance)
        except EtdevError as error:
            what = f"has values in {error.who}, for which etdev knows no tolerance"
            cure = "give tolerance=, or lower it without verifying"
            raise VerifyError(f"method {name!r}", what, cure) from error

    def _play(self, reasons: dict[str, str]) -> list[tuple[Session, EagerCall]]:
        """Call all methods in eager PyTorch; those that fail are not verified, if they may."""
        self._say(", ".join(self.sessions), "in eager PyTorch")
        sessions = self.sessions.items()
        playing = {n: s.play(self.steps, resized=True, draws=self._draws(n)) for n, s in sessions}
        series = [(self.sessions[name], call) for name, call in interleaved(playing)]
        for name, session in self.sessions.items():
            try:
                session.require()
            except VerifyError as error:
                if session.given:
                    raise
                reasons[name] = error.what
        return series

    def _inconclusive(self, reasons: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the methods whose values a wrong program may return, too, and the reason."""
        for group in self._groups:
            played = [name for name in group if not reasons[name]]
            # A method that returns nothing is seen in those that share its state.
            if not any(self.sessions[name].is_conclusive for name in played):
                why = f"it returns no finite value larger than {TINY}"
                yield from ((name, why) for name in played)

    def _compare(self, series: _Series, runner: Runner) -> Iterator[EdgeCall]:
        """Run all calls in one loaded program; yield those at edge values.

        Raises:
            VerifyError: A call departs from eager PyTorch, and edge values are not reported apart.
        """
        while series:
            names = dict.fromkeys(session.name for session, _ in series)
            self._say(", ".join(names), counted(len(series), "call"))
            result = self._run(series, runner)
            # The one that failed is the first without values.
            tried, rest = series[: len(result.values) + 1], series[len(result.values) + 1 :]
            for step, (session, call) in enumerate(tried):
                problem = session.problem(result, step, call)
                if problem and runner is not PYTHON:
                    problem = f"in runner {runner.name}, {problem}"
                if problem and (self.edges or not call.edge):
                    failed = step == len(result.values)
                    raise self._error(tried[: step + 1], problem, failed, runner)
                if call.edge:
                    yield EdgeCall(session.name, call.edge, problem or "")
            # After a failure the states are lost.
            series = [(session, call) for session, call in rest if not session.has_state]

    def _run(self, series: _Series, runner: Runner) -> ChildResult:
        data = self.data or ptd.find(self.artifact, self.path)
        calls = [(self.artifact.method(session.name), call.inputs) for session, call in series]
        share = self.artifact.shares_state
        return run_series(self.path, calls, data, runner=runner, share_arenas=share)

    def _error(self, series: _Series, problem: str, failed: bool, runner: Runner) -> VerifyError:
        """Return the error about the last of some calls."""
        session, last = series[-1]
        own = [call for other, call in series if other is session]
        where = f"at {last.edge}" if last.edge else f"step {len(own) - 1}"
        if self._right_alone(series, runner):
            cause = "; it is right by itself, so calls of another method disturb it"
        else:
            cause = self._cause(session, own, failed, runner)
        asked = [name for name, _ in self.decided.plan.plugins] if self.decided else []
        named = [name for name in asked if name != PORTABLE] or asked
        cure = _CURE.format(chosen=f" --plugin {','.join(named)}" if named else "")
        return VerifyError(f"method {session.name!r}", f"{where}: {problem}{cause}", cure)

    def _right_alone(self, series: _Series, runner: Runner) -> bool:
        """Return True if the last method is right without those that share no state with it."""
        group = next(group for group in self._groups if series[-1][0].name in group)
        own = [(session, call) for session, call in series if session.name in group]
        if len(own) == len(series):
            return False
        result = self._run(own, runner)
        return not any(session.problem(result, n, call) for n, (session, call) in enumerate(own))

    def _cause(
        self, session: Session, calls: Sequence[EagerCall], failed: bool, runner: Runner
    ) -> str:
        """Name what makes the last of some calls of a method wrong or fail."""
        if self.decided is None:
            return ""
        if assumption := session.reference.broken_assumption(calls[-1].inputs):
            return f"; torch.export took for granted that {assumption}: say so in dynamic_shapes"
        self._say(session.name, "search for the cause")
        try:
            facts = self.artifact.method(session.name)
            calls = [evolve(call, inputs=prepared(facts, call.inputs)) for call in calls]
            found = bisection(self.path, self.decided, session.name, calls, runner)
            cause = found.culprit(session.tolerance, failed)
        except Exception as error:
            return f"; the cause can't be searched ({first_line(error)})"
        alone = "every delegate and every portable kernel is right by itself"
        if len(self._groups) > 1:
            alone += ", so methods may share state in Python, which torch.export forgets"
        if found.skipped:
            alone += f", except for those that can't be called alone: {', '.join(found.skipped)}"
        return f"; {cause or alone}"

    def _say(self, name: str, detail: str) -> None:
        if self.listener:
            self.listener("verify", f"{name} {detail}")
