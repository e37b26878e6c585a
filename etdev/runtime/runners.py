"""Runners: runtimes that load a program in a process of their own and call its methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from attrs import evolve, frozen

from etdev.errors import EtdevError, EtdevWarning, RunError
from etdev.pte.artifact import Artifact, MethodArtifact
from etdev.registry import answers, extensions
from etdev.registry.plugin import Plugin
from etdev.runtime.child import CHILD, Child, ChildResult
from etdev.runtime.worker import (
    CallResult,
    Program,
    find_missing,
    load_method,
    load_program,
    run_calls,
    trace_calls,
)
from etdev.schema.target import Target

__all__ = [
    "PYTHON",
    "CallResult",
    "Calls",
    "Program",
    "PythonRunner",
    "Runner",
    "TargetRunner",
    "lacking",
    "named",
    "on_target",
    "runner_of",
    "verifying",
]

# The runner for targets if none is named.
_ON_TARGETS = "cpp"
Calls = Sequence[tuple[str, Sequence[Any]]]


def _missing(method: MethodArtifact) -> tuple[list[str], list[str]]:
    """Ask the process that runs programs, since this one may not have imported torch."""
    asked = CHILD.run(find_missing, Program.of(b"", [method]), method)
    if asked.failure:
        raise RunError("executorch.runtime", f"can't be used: {asked.failure}", "reinstall it")
    found: tuple[list[str], list[str]] = asked.values[0]
    return found


@runtime_checkable
class Runner(Protocol):
    """A runtime in a process of its own, which a program may crash or hang without harm to etdev.

    An entry point in the group `etdev.runners` names one. `prepare` is called before the rest. One
    that runs elsewhere, too, has `on_target(target)`, which returns a list of `TargetRunner`s for
    an `etdev.schema.target.Target`.
    """

    @property
    def name(self) -> str:
        """Its name, as `--runner` takes it: that of its entry point."""

    @property
    def verifies(self) -> bool:
        """True if it loads what executorch.runtime loads, so that verification tries it as well."""

    def prepare(self) -> None:
        """Make it ready, and raise an EtdevError with the cure if it can't be used here."""

    def missing(self, method: MethodArtifact) -> tuple[list[str], list[str]]:
        """Return the backends and the kernels that it lacks for a method."""

    def load(self, program: Program, method: str) -> ChildResult:
        """Load a method, and yield no value."""

    def call(self, program: Program, calls: Calls, repeat: int, limit_s: float) -> ChildResult:
        """Call methods in turn, each by name and inputs, in one loaded program.

        The values are a CallResult for each call that finished, with the times of `repeat` more,
        or with its own time if there are none. A call that changes its state changes it each time.
        """

    def trace(
        self, program: Program, method: str, inputs: Sequence[Any], count: int
    ) -> ChildResult:
        """Call a method several times; the value is its ETDump, empty if none is written."""

    def close(self) -> None:
        """End its process; the next call starts one."""


class TargetRunner(Runner, Protocol):
    """A runner whose programs run on a target."""

    @property
    def emulated(self) -> bool:
        """True if its times say nothing about the target; they are never shown."""

    def lacking(self, backends: Iterable[str]) -> list[str]:
        """Return the backends that its runtime lacks; its libraries tell if it doesn't run."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Its name, and what a lock records of it, such as triple, wheel and processor."""


@frozen(eq=False)
class PythonRunner:
    """A runner in a Python process.

    Args:
        name: Its name.
        loader: A function of a module, called in that process as `load_program` is; its result has
            `load_method(name)`, whose result has `execute(inputs)`.
        child: The process.
        lacking: Returns the backends and kernels that its runtime lacks for a method.
        verifies: True if it loads what executorch.runtime loads, as for any `Runner`.
    """

    name: str = "python"
    loader: Callable[..., Any] = load_program
    child: Child = CHILD
    lacking: Callable[[MethodArtifact], tuple[list[str], list[str]]] = _missing
    verifies: bool = False

    def prepare(self) -> None:
        """Start the process, so that it loads its runtime while this one does something else."""
        self.child.start()

    def missing(self, method: MethodArtifact) -> tuple[list[str], list[str]]:
        return self.lacking(method)

    def load(self, program: Program, method: str) -> ChildResult:
        return self.child.run(load_method, self._loaded_here(program), method)

    def call(self, program: Program, calls: Calls, repeat: int, limit_s: float) -> ChildResult:
        own = self._loaded_here(program)
        return self.child.run(run_calls, own, calls, repeat, limit_s=limit_s)

    def trace(
        self, program: Program, method: str, inputs: Sequence[Any], count: int
    ) -> ChildResult:
        return self.child.run(trace_calls, self._loaded_here(program), method, inputs, count)

    def close(self) -> None:
        self.child.close()

    def _loaded_here(self, program: Program) -> Program:
        return evolve(program, loader=self.loader)


PYTHON = PythonRunner()


def named(name: str) -> Runner:
    """Return the runner of a name, ready to be used."""
    if name == PYTHON.name:
        return PYTHON
    found: Runner = extensions.load(extensions.RUNNERS, name, _fault, PYTHON.name)
    found.prepare()
    return found


def on_target(target: Target, name: str | None = None) -> list[TargetRunner]:
    """Return the runners for a target, ready to be used: one for each model of processor.

    Raises:
        RunError: The runner of that name, by default that in C++, runs on this machine alone.
    """
    made = _on_target(target, name)
    for runner in made:
        runner.prepare()
    return made


def lacking(target: Target, backends: Iterable[str]) -> list[str]:
    """Return the backends that the runtime of a target lacks, as `TargetRunner.lacking` does."""
    return _on_target(target)[0].lacking(backends)


def _on_target(target: Target, name: str | None = None) -> list[TargetRunner]:
    found: Any = PYTHON
    if name != PYTHON.name:
        found = extensions.load(extensions.RUNNERS, name or _ON_TARGETS, _fault, PYTHON.name)
    if not hasattr(found, "on_target"):
        raise RunError(str(name), "runs on this machine alone", "leave out --runner or --target")
    made: list[TargetRunner] = found.on_target(target)
    return made


def runner_of(
    artifact: Artifact,
    plugins: Sequence[Plugin],
    name: str | None = None,
    target: Target | None = None,
) -> Runner:
    """Return the runner of a target or a name, else the one for the delegates of a .pte.

    Plugins name that one; without either it is Python's.
    """
    if target:
        return on_target(target, name)[-1]
    if name:
        return named(name)
    backends = sorted({d.backend_id for method in artifact.methods for d in method.delegates})
    wishes = {backend: answers.runner_for(plugins, backend) for backend in backends}
    names = sorted({wish for wish in wishes.values() if wish})
    if len(names) > 1:
        texts = ", ".join(f"{backend} needs {wish}" for backend, wish in wishes.items() if wish)
        raise RunError(artifact.path, f"no runner has all backends: {texts}", "give --runner")
    return named(names[0]) if names else PYTHON


def verifying(
    artifact: Artifact,
    plugins: Sequence[Plugin],
    name: str | None = None,
    target: Target | None = None,
) -> list[Runner]:
    """Return the runners that verify a .pte: of a target, of a name, or those that fit it here."""
    if target:
        return [*on_target(target, name)]
    first = runner_of(artifact, plugins, name)
    return [first, *(_others(artifact) if first is PYTHON and not name else ())]


def _others(artifact: Artifact) -> Iterator[Runner]:
    """Yield the installed runners that load what executorch.runtime loads, and have all it needs.

    One that can't be prepared is left out with a warning.
    """
    for name in sorted(extensions.candidates(extensions.RUNNERS)) if extensions.autoload() else ():
        try:
            found: Runner = extensions.load(extensions.RUNNERS, name, _fault)
            if not found.verifies:
                continue
            found.prepare()
        except EtdevError as error:
            warnings.warn(f"runner {name!r} was left out: {error}", EtdevWarning, stacklevel=2)
            continue
        if not any(lacking for m in artifact.methods for lacking in found.missing(m)):
            yield found


def _fault(value: object) -> str:
    kind = type(value).__name__
    return "" if isinstance(value, Runner) else f"is a {kind}, not a runner"
