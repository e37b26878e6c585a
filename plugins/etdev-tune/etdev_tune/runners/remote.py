"""Measurements on a target of the registry, by the runner that etdev-cpp has for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etdev.app import Plugin
from etdev.errors import RunError
from etdev.runtime.runners import on_target
from etdev.schema.target import Target
from etdev_tune.exchange import Failure, Request, Result, Runner
from etdev_tune.runners.local import Local
from etdev_tune.runners.runtimes import measured


class OnTarget:
    """A target, which is connected to at once.

    Args:
        target: The target.
        runner: Name of the runner; None for that in C++.

    Raises:
        RunError: It is emulated, can't be reached, or lacks the runner.
    """

    def __init__(self, target: Target, runner: str | None = None) -> None:
        if target.models:
            cure = 'tune on the device itself, with on = "ssh:HOST" or "adb"'
            raise RunError("target", "is emulated, and its times mean nothing", cure)
        (self._runner,) = on_target(target, runner)
        self.name = self._runner.name

    def fingerprint(self) -> Mapping[str, str]:
        """Return its processor, triple and wheel."""
        return dict(self._runner.facts)

    def run(self, request: Request) -> Result | Failure:
        """Run a program there, in a new process."""
        found = measured(self._runner, request)
        if isinstance(found, Failure):
            # Raises an error if it is the target that is lost.
            self._runner.prepare()
        return found

    def close(self) -> None:
        """Disconnect; the programs are removed there."""
        self._runner.close()


def open_runner(
    target: Target | None = None, plugins: Sequence[Plugin] = (), runner: str | None = None
) -> Runner:
    """Return what measures on a target, or on this machine if that is None.

    Args:
        target: The target.
        plugins: As for `Local`.
        runner: As for `Local` and `OnTarget`.

    Raises:
        RunError: As `OnTarget` does.
    """
    return OnTarget(target, runner) if target else Local(plugins, runner)
