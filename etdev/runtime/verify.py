"""Verification: a .pte is called like the model in eager PyTorch, and must give the same values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from torch.export import ExportedProgram

from etdev.edge.reference import Reference
from etdev.errors import EtdevError, VerifyError, first_line, shown
from etdev.pte import ptd
from etdev.pte.artifact import MethodArtifact
from etdev.pte.read import read
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.runtime.bisect import bisection
from etdev.runtime.child import Outcome
from etdev.runtime.compare import Tolerance, mismatch, tolerance_of
from etdev.runtime.decision import Decision
from etdev.runtime.inputs import check_inputs, method_of
from etdev.runtime.kernels import missing
from etdev.runtime.run import run_method
from etdev.runtime.sessions import Call, is_random, sessions_of
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
    """

    calls: int
    tolerance: float
    unverified: tuple[str, ...]
    edges: tuple[EdgeCall, ...] = ()

    def require(self, cure: str) -> None:
        """Reject a verification that left out a method or state."""
        if self.unverified:
            raise VerifyError("not verified", "; ".join(self.unverified), cure)


@frozen(eq=False)
class Verifier:
    """Comparison of a .pte with eager PyTorch; `Lowered.verify` explains the options.

    Args:
        decided: Decision of the .pte, which is used to name the delegate or kernel that is wrong.
        plugins: Plugins that know which dtype the backends of the .pte round float32 to.
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

    def verify(self, inputs: Any = None) -> Verification:
        """Run all methods and compare them; name those that can't be run or compared here."""
        if type(self.steps) is not int or self.steps < 1:
            raise VerifyError("steps", f"is {shown(self.steps)}", "give how many calls, 1 or more")
        artifact = read(self.path)
        data = self.data or ptd.find(artifact, self.path)
        calls, largest, unverified = 0, 0.0, []
        for name, reference in self.references.items():
            facts = method_of(artifact, name)
            self._say(name)
            given = reference.given(inputs.get(name) if isinstance(inputs, Mapping) else inputs)
            reason, sessions = _unverifiable(facts, reference), list[list[Call]]()
            try:
                if not reason:
                    sessions = sessions_of(reference, given, self.steps, self.edges)
            except EtdevError as error:
                if given:
                    raise
                reason = error.what
            if reason:
                unverified.append(f"method {name!r}: {reason}")
                continue
            tolerance = self._tolerance(facts, reference.program)
            largest = max(largest, tolerance.relative)
            calls += self._method(facts, tolerance, sessions, data)
        return Verification(calls, largest, tuple(unverified))

    def _method(
        self,
        facts: MethodArtifact,
        tolerance: Tolerance,
        sessions: Sequence[Sequence[Call]],
        data: Path | None,
    ) -> int:
        """Verify a method; return the number of calls."""
        name = facts.name
        check_inputs(facts, _flat(sessions[0][0].inputs, facts))
        self._say(name, f"{sum(map(len, sessions))} calls")
        for index, session in enumerate(sessions):
            inputs = [_flat(call.inputs, facts) for call in session]
            outcome = run_method(self.path, facts, inputs, data)
            for step, call in enumerate(session):
                if problem := _problem(outcome, step, call, tolerance):
                    where = f"edge values {index - 1}" if index else f"step {step}"
                    cause = self._cause(facts, call, tolerance)
                    cure = (
                        "don't ship it; leave out the plugin or op that is at fault, or report this"
                    )
                    raise VerifyError(f"method {name!r}", f"{where}: {problem}{cause}", cure)
        return sum(map(len, sessions))

    def _tolerance(self, facts: MethodArtifact, program: ExportedProgram) -> Tolerance:
        backends = sorted({delegate.backend_id for delegate in facts.delegates})
        answered = [answers.rounds_to(self.plugins, backend) for backend in backends]
        known = tolerance_of(program, [dtype for dtype in answered if dtype])
        return known if self.tolerance is None else Tolerance(self.tolerance, known.steps)

    def _cause(self, facts: MethodArtifact, call: Call, tolerance: Tolerance) -> str:
        if self.decided is None:
            return ""
        self._say(facts.name, "search for the cause")
        try:
            inputs = _flat(call.inputs, facts)
            found = bisection(self.path, self.decided, facts.name, inputs, call.state)
            cause = found.culprit(tolerance)
        except Exception as error:
            return f"; the cause can't be searched ({first_line(error)})"
        alone = "every delegate and every portable kernel is right by itself"
        if found.skipped:
            alone += f", except for those that can't be called alone: {', '.join(found.skipped)}"
        return f"; {cause or alone}"

    def _say(self, name: str, detail: str = "") -> None:
        if self.listener:
            self.listener("verify", f"{name} {detail}".rstrip())


def _unverifiable(facts: MethodArtifact, reference: Reference) -> str | None:
    """Return why a method can't be verified on this machine; None if it can."""
    try:
        lacking = dict(zip(("backend", "kernel"), missing(facts), strict=True))
    except ImportError:
        return "ExecuTorch is built without its runtime for Python"
    for kind, names in lacking.items():
        if names:
            return f"the runtime has no {kind} {', '.join(names)}"
    return "it draws random numbers" if is_random(reference) else None


def _problem(outcome: Outcome, step: int, call: Call, tolerance: Tolerance) -> str | None:
    if step >= len(outcome.values):
        return outcome.failure
    ran = outcome.values[step]
    return mismatch(ran.outputs, call.outputs, tolerance) or mismatch(
        ran.inputs, call.after, tolerance, "input after the call,"
    )


def _flat(inputs: Sequence[Any], facts: MethodArtifact) -> list[Any]:
    """Return inputs as the .pte takes them: it need not have an input for one that is None."""
    if len(inputs) == len(facts.inputs):
        return list(inputs)
    return [value for value in inputs if value is not None]
