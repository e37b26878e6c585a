"""Verification: a .pte is called like the model in eager PyTorch, and must give the same values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from torch.export import ExportedProgram

from etdev.edge.reference import Reference
from etdev.edge.shared_state import shared_states
from etdev.errors import SourceError, VerifyError, first_line, shown
from etdev.lowering.lowering import Lowering
from etdev.pte import ptd
from etdev.pte.artifact import Artifact, MethodArtifact
from etdev.pte.read import read
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.runtime.child import ChildResult
from etdev.runtime.inputs import method_of, prepared
from etdev.runtime.run import run_series
from etdev.runtime.runners import PYTHON, Runner, verifying
from etdev.schema.stopwatch import Listener
from etdev.schema.wording import counted
from etdev.verify.bisect import bisection
from etdev.verify.oracle import (
    Eager,
    EagerCall,
    Session,
    interleaved,
    is_random,
    new_session,
    plays,
)
from etdev.verify.replay import Replay
from etdev.verify.tolerance import TINY, Tolerance, steps_of, tolerance_of
from etdev.verify.verification import EdgeCall, Verification

STEPS = 3
_CURE = "don't ship it; leave out the plugin or op that is at fault, or report this"


@frozen(eq=False, slots=False)
class Verifier:
    """Comparison of a .pte with eager PyTorch; `Lowered.verify` explains the options.

    Args:
        decided: Lowering of the .pte, which is used to name the delegate or kernel that is wrong.
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
    decided: Lowering | None = None
    listener: Listener | None = None
    plugins: Sequence[Plugin] = ()
    method: str | None = None
    runner: str | None = None
    sessions: dict[str, Session] = field(factory=dict, init=False)

    @cached_property
    def artifact(self) -> Artifact:
        """The contents of the .pte."""
        return read(self.path)

    def verify(self, inputs: Any = None) -> Verification:
        """Run all methods, their calls mixed at random, and compare each with its own session."""
        if type(self.steps) is not int or self.steps < 1:
            raise VerifyError("steps", f"is {shown(self.steps)}", "give how many calls, 1 or more")
        runners = verifying(self.artifact, self.plugins, self.runner)
        unverified: list[str] = []
        groups, given = self._groups(), dict[str, Any]()
        for name in (name for group in groups for name in group):
            own = inputs.get(name) if isinstance(inputs, Mapping) else inputs
            given[name] = self.references[name].given(own)
        methods = self._methods(groups, given, runners[0], unverified)
        order = self._play(methods, given, unverified)
        self.sessions.update({name: method.session for name, method in methods.items()})
        conclusive = {name for name, method in methods.items() if method.session.is_conclusive}
        for group in groups:
            # A method that returns nothing is seen in those that share its state.
            for name in group if conclusive.isdisjoint(group) else ():
                if methods.pop(name, None):
                    unverified.append(
                        f"method {name!r}: it returns no finite value larger than {TINY}"
                    )
        series = [(name, call) for name, call in order if name in methods]
        for name, method in methods.items():
            for value, attempts in method.session.samples.edges(self.edges):
                method.session.call(attempts, value)
            series += [(name, call) for call in method.session.calls if call.edge]
        unverified += self._apart()
        edges = dict[tuple[str, str], EdgeCall]()
        for run in runners:
            for edge in self._compare(methods, series, run):
                known = edges.setdefault((edge.method, edge.value), edge)
                edges[edge.method, edge.value] = known if known.problem else edge
        for name, why in [(name, why) for name, m in methods.items() if (why := m.doubt)]:
            del methods[name]
            unverified.append(f"method {name!r}: {why}")
        calls = sum(not call.edge for m in methods.values() for call in m.session.calls)
        largest = max((method.tolerance.relative for method in methods.values()), default=0.0)
        names = tuple(run.name for run in runners)
        remarks = tuple(chain.from_iterable(method.remarks() for method in methods.values()))
        found = tuple(edges.values())
        return Verification(calls, largest, tuple(unverified), found, names, remarks)

    def _methods(
        self,
        groups: Sequence[tuple[str, ...]],
        given: Mapping[str, Any],
        runner: Runner,
        unverified: list[str],
    ) -> dict[str, Replay]:
        """Return the methods that can be verified, with sessions that have no calls yet."""
        methods = {}
        apart = any(self._apart()) or not all(state.shared for state in self.artifact.state)
        # They may share state in Python, too.
        together = None if apart else Eager(list(self.references.values()))
        for group in groups:
            eager = together or Eager([self.references[name] for name in group])
            for name in group:
                reference = self.references[name]
                facts, program = method_of(self.artifact, name), reference.program
                if reason := _unverifiable(facts, reference, runner):
                    unverified.append(f"method {name!r}: {reason}")
                    continue
                outputs = [out for out in program.graph_signature.user_outputs if out is not None]
                steps = steps_of(program, outputs) if self.tolerance is None else []
                session = new_session(reference, given[name], eager)
                methods[name] = Replay(facts, session, self._tolerance(facts, program), steps)
        return methods

    def _play(
        self, methods: dict[str, Replay], given: Mapping[str, Any], unverified: list[str]
    ) -> list[tuple[str, EagerCall]]:
        """Call all methods in eager PyTorch; leave out those that fail, if they may."""
        self._say(", ".join(methods), "in eager PyTorch")
        sessions = {name: method.session for name, method in methods.items()}
        playing = {n: plays(s, given[n], self.steps, resized=True) for n, s in sessions.items()}
        order, errors = interleaved(sessions, playing)
        for name, error in errors.items():
            if given[name]:
                raise error
            del methods[name]
            unverified.append(f"method {name!r}: {error.what}")
        return order

    def _groups(self) -> list[tuple[str, ...]]:
        """Return the methods to verify; those that share state in the .pte are in one group."""
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

    def _apart(self) -> Iterator[str]:
        """Say which state methods share in eager PyTorch, though the .pte does not say so."""
        known = [state.targets for state in self.artifact.state]
        programs = {name: reference.program for name, reference in self.references.items()}
        for state in shared_states(programs):
            if state.targets not in known and self.method in (None, *state.targets):
                yield f"buffer {state}, which several methods share: in this .pte each has its own"

    def _compare(
        self,
        methods: Mapping[str, Replay],
        left: Sequence[tuple[str, EagerCall]],
        runner: Runner,
    ) -> Iterator[EdgeCall]:
        """Run the calls of all methods in one loaded program; yield those at edge values."""
        while left:
            self._say(", ".join(methods), counted(len(left), "call"))
            outcome = self._run([(methods[name], call) for name, call in left], runner)
            for step, (name, call) in enumerate(left[: len(outcome.values) + 1]):
                problem = methods[name].problem(outcome, step, call)
                if problem and runner is not PYTHON:
                    problem = f"in runner {runner.name}, {problem}"
                if problem and (self.edges or not call.edge):
                    own = [c for known, c in left[: step + 1] if known == name]
                    where = f"at {call.edge}" if call.edge else f"step {len(own) - 1}"
                    failed = step == len(outcome.values)
                    if self._right_alone(methods, left[: step + 1], runner):
                        cause = "; it is right by itself, so calls of another method disturb it"
                    else:
                        cause = self._cause(methods[name], own, failed, runner)
                    what = f"{where}: {problem}{cause}"
                    raise VerifyError(f"method {name!r}", what, _CURE)
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

    def _run(self, calls: Sequence[tuple[Replay, EagerCall]], runner: Runner) -> ChildResult:
        data = self.data or ptd.find(self.artifact, self.path)
        series = [(method.facts, call.inputs) for method, call in calls]
        share = self.artifact.shares_state
        return run_series(self.path, series, data, runner=runner, share_arenas=share)

    def _right_alone(
        self,
        methods: Mapping[str, Replay],
        calls: Sequence[tuple[str, EagerCall]],
        runner: Runner,
    ) -> bool:
        """Return True if the last method is right without those that share no state with it."""
        last, _ = calls[-1]
        group = next(group for group in self._groups() if last in group)
        own = [(methods[name], call) for name, call in calls if name in group]
        if len(own) == len(calls):
            return False
        outcome = self._run(own, runner)
        return not any(
            method.problem(outcome, step, call) for step, (method, call) in enumerate(own)
        )

    def _cause(
        self, method: Replay, calls: Sequence[EagerCall], failed: bool, runner: Runner
    ) -> str:
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
        if len(self._groups()) > 1:
            alone += ", so methods may share state in Python, which torch.export forgets"
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
    try:
        reference.example()
    except SourceError as error:
        return error.what
    return "it draws random numbers" if is_random(reference) else None
