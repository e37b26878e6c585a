"""Verification: a .pte computes what eager PyTorch computes, call after call, or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from torch.export import ExportedProgram

from etdev.edge.reference import Reference
from etdev.errors import VerifyError, first_line, shown
from etdev.pte import ptd
from etdev.pte.artifact import MethodArtifact
from etdev.pte.read import read
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.runtime.bisect import bisection
from etdev.runtime.blame import culprit
from etdev.runtime.decision import Decision
from etdev.runtime.inputs import check_inputs, laid_out, method_of
from etdev.runtime.isolation import Job, Result, isolated
from etdev.runtime.kernels import missing
from etdev.runtime.sessions import Call, is_random, sessions_of
from etdev.runtime.tolerance import Tolerance, tolerance_of
from etdev.runtime.wrong import wrong
from etdev.schema.stages import Listener

STEPS = 3


@frozen
class Verification:
    """What was verified, and what was not.

    Args:
        calls: Number of calls that agree with eager PyTorch, over all methods.
        tolerances: The tolerance of each method that was verified.
        unverified: What was not, and why, in words.
    """

    calls: int
    tolerances: Mapping[str, Tolerance]
    unverified: tuple[str, ...]


@frozen(eq=False)
class Verifier:
    """Compares a .pte with eager PyTorch.

    Args:
        path: The .pte.
        references: Its methods in eager PyTorch, or some of them.
        steps: Calls of each method, one after the other, which carry its state on.
        edges: Also call it with NaN, infinities and the edge values of each dtype, and with dynamic
            sizes of 0 where their range has that, each time with the state it starts with.
        tolerance: Relative tolerance, in place of what tolerance.py says.
        data: Its .ptd; None searches for one beside it.
        decided: What was decided for it, to name the delegate or kernel that is wrong.
        listener: Told what is going on.
        plugins: Asked what the backends of the .pte round float32 to.
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

    def verify(self, inputs: Any = None, strict: bool = False) -> Verification:
        """Run all methods and compare them.

        Args:
            inputs: Arguments of the first call as a tuple, or of several as a list of tuples; by
                method in a dict if there are several. The rest is made like them.
            strict: What can't be verified is an error, too.

        Raises:
            VerifyError: Something differs, fails, or takes the runtime down.
            ArtifactError: The .pte can't be read.
        """
        if type(self.steps) is not int or self.steps < 1:
            raise VerifyError("steps", f"is {shown(self.steps)}", "give how many calls, 1 or more")
        artifact = read(self.path)
        data = self.data or ptd.find(artifact, self.path)
        calls, tolerances, unverified = 0, {}, []
        for name, reference in self.references.items():
            facts = method_of(artifact, name)
            self._say(name)
            if reason := _unverifiable(facts, reference):
                unverified.append(f"method {name!r} was not verified: {reason}")
                continue
            tolerances[name] = self._tolerance(facts, reference.program)
            given = inputs.get(name) if isinstance(inputs, Mapping) else inputs
            calls += self._method(facts, tolerances[name], reference.given(given), data)
        if strict and unverified:
            raise VerifyError(str(self.path), unverified[0], "leave out strict to accept that")
        return Verification(calls, tolerances, tuple(unverified))

    def _method(
        self,
        facts: MethodArtifact,
        tolerance: Tolerance,
        given: Sequence[Sequence[Any]],
        data: Path | None,
    ) -> int:
        """Verify a method; returns the number of calls."""
        name = facts.name
        sessions = sessions_of(self.references[name], given, self.steps, self.edges)
        check_inputs(facts, _flat(sessions[0][0].inputs, facts))
        self._say(name, f"{sum(map(len, sessions))} calls")
        jobs = [
            Job(
                self.path,
                name,
                [laid_out(facts, _flat(call.inputs, facts)) for call in calls],
                data,
            )
            for calls in sessions
        ]
        for index, result in enumerate(isolated(jobs)):
            for step, call in enumerate(sessions[index]):
                if problem := _problem(result, step, call, tolerance):
                    where = f"edge values {index - 1}" if index else f"step {step}"
                    raise self._error(facts, f"{where}: {problem}", call, tolerance)
        return sum(map(len, sessions))

    def _tolerance(self, facts: MethodArtifact, program: ExportedProgram) -> Tolerance:
        backends = sorted({delegate.backend_id for delegate in facts.delegates})
        answered = [answers.rounds_to(self.plugins, backend) for backend in backends]
        known = tolerance_of(program, [dtype for dtype in answered if dtype])
        return known if self.tolerance is None else Tolerance(self.tolerance, known.steps)

    def _error(
        self, facts: MethodArtifact, problem: str, call: Call, tolerance: Tolerance
    ) -> VerifyError:
        self._say(facts.name, "search for the cause")
        return VerifyError(
            f"method {facts.name!r}",
            f"{problem}{self._cause(facts, call, tolerance)}",
            "don't ship it; leave out the plugin or op that is at fault, or report this",
        )

    def _cause(self, facts: MethodArtifact, call: Call, tolerance: Tolerance) -> str:
        if self.decided is None:
            return ""
        try:
            inputs = _flat(call.inputs, facts)
            calls = bisection(self.path, self.decided, facts.name, inputs, call.state)
            cause = culprit(calls, tolerance)
        except Exception as error:
            return f"; the cause can't be searched ({first_line(error)})"
        return (
            f"; {cause}"
            if cause
            else ("; every delegate and every portable kernel is right by itself")
        )

    def _say(self, name: str, detail: str = "") -> None:
        if self.listener:
            self.listener("verify", f"{name} {detail}".rstrip())


def _unverifiable(facts: MethodArtifact, reference: Reference) -> str | None:
    """Why a method can't be compared here, if so.

    Raises:
        VerifyError: The runtime has no kernel for an op of it.
    """
    lacks = missing(facts)
    if lacks.kernels:
        raise VerifyError(
            f"method {facts.name!r}",
            f"the runtime has no kernel {', '.join(lacks.kernels)}",
            "leave out those ops, or give them to a plugin",
        )
    if lacks.backends:
        return f"the runtime has no backend {', '.join(lacks.backends)}"
    return "it draws random numbers" if is_random(reference) else None


def _problem(result: Result, step: int, call: Call, tolerance: Tolerance) -> str | None:
    if step >= len(result.calls):
        return result.failure
    ran = result.calls[step]
    return wrong(ran.outputs, call.outputs, tolerance) or wrong(
        ran.inputs, call.after, tolerance, "input after the call,"
    )


def _flat(inputs: Sequence[Any], facts: MethodArtifact) -> list[Any]:
    """Inputs as the .pte takes them: it may or may not have an input for one that is None."""
    if len(inputs) == len(facts.inputs):
        return list(inputs)
    return [value for value in inputs if value is not None]
