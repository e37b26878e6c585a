"""Progress: what the command line shows on stderr while it works."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from etdev.cli.live import LiveStages
from etdev.cli.plain import plain
from etdev.cli.streams import without_noise
from etdev.cli.verbosity import Verbosity
from etdev.errors import EtdevWarning
from etdev.schema.stages import Step
from etdev.upstream.process import loading, set_log_level

Say = Callable[[str, str], None]
_STAGE = "etdev.stage"
_PLAIN = Verbosity()


def console() -> Console:
    """Make a console on stderr, wide enough not to fold lines where it is not a terminal."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else 200)


def complain(text: str, style: str, err: Console | None = None) -> None:
    """Print a line of plain text in a colour."""
    # Never folded: a message is one line, and scripts look for its beginning and end.
    shown = err or console()
    shown.print(plain(text), style=style, markup=False, highlight=False, soft_wrap=True)


def stage(context: click.Context) -> str:
    """The stage that a command has reached, with its detail; empty before the first."""
    return str(context.find_root().meta.get(_STAGE, ""))


@contextmanager
def quieted(debug: bool = False) -> Iterator[Console]:
    """A console on which etdev's own warnings are lines; those of libraries are not shown.

    Args:
        debug: Let other libraries' warnings and logs through.
    """
    verbosity = Verbosity.chosen()
    with warnings.catch_warnings(), without_noise(not debug and verbosity.level is None):
        if not debug:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", EtdevWarning)
        err = console()

        def show(message: Warning | str, *_: object, **__: object) -> None:
            complain(f"warning: {message}", "yellow", err)

        warnings.showwarning = show
        yield err


@contextmanager
def working(debug: bool = False) -> Iterator[Say]:
    """Load PyTorch and ExecuTorch, then show stages: live on a terminal, else a line each.

    Args:
        debug: Let other libraries' warnings and logs through.
    """
    verbosity = Verbosity.chosen()
    with quieted(debug) as err:
        if verbosity.quiet or verbosity.verbose or not err.is_terminal:
            say = _Noted(_Lines(err, verbosity))
            _load_torch(say, debug, verbosity)
            yield say
            return
        stages = LiveStages()
        say = _Noted(stages)
        with Live(stages, console=err, transient=True):
            _load_torch(say, debug, verbosity)
            yield say


class _Noted:
    """Passes all on to a listener, and has the command remember the stage."""

    def __init__(self, listener: Any) -> None:
        self.listener = listener
        self._context = click.get_current_context(silent=True)

    def __call__(self, stage: str, detail: str) -> None:
        if self._context:
            self._context.find_root().meta[_STAGE] = f"{stage} {detail}".rstrip()
        self.listener(stage, detail)

    def step(self, step: Step) -> None:
        """What became of a partition."""
        self.listener.step(step)


def _load_torch(say: Say, debug: bool, verbosity: Verbosity) -> None:
    say("load", "PyTorch and ExecuTorch")
    with loading():
        import_torch(debug, verbosity)


def import_torch(debug: bool, verbosity: Verbosity) -> None:
    """Import PyTorch and ExecuTorch, of whose logs is shown what was asked for."""
    if verbosity.level is not None:
        logging.basicConfig(level=verbosity.level, stream=sys.stderr, force=True)
        set_log_level(verbosity.level)
    elif not debug:
        # With a handler on the root logger, the libraries' calls of basicConfig do nothing.
        logging.getLogger().addHandler(logging.NullHandler())
        # Before ExecuTorch is imported, since its imports log. Not even errors: torch logs the
        # traceback of each one that it raises.
        set_log_level(logging.CRITICAL)
    import executorch.exir  # noqa: F401


def lines(err: Console) -> Say:
    """Print each stage once, and each partition that fails; all steps would flood a log."""
    return _Lines(err)


class _Lines:
    """Prints each stage once, unless all or nothing is wanted, and each partition that fails."""

    def __init__(self, err: Console, verbosity: Verbosity = _PLAIN) -> None:
        self._err, self._verbosity = err, verbosity
        self._printed: set[str] = set()

    def __call__(self, stage: str, detail: str) -> None:
        quiet, verbose = self._verbosity.quiet, self._verbosity.verbose
        if not quiet and (verbose or stage not in self._printed):
            self._printed.add(stage)
            self._print(f"{stage} {detail}".rstrip())

    def step(self, step: Step) -> None:
        """Print a step of a partition if it matters."""
        if step.state == "failed" or self._verbosity.verbose:
            self._print(f"{step.state} {step.partition}, {step.nodes} nodes, {step.seconds:.1f} s")

    def _print(self, text: str) -> None:
        self._err.print(f"{plain(text)} …", markup=False, highlight=False, soft_wrap=True)
