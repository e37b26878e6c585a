"""The progress of a command on stderr: live on a terminal, a line for each stage elsewhere."""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn

from etdev.cli.options import given
from etdev.cli.streams import plain
from etdev.errors import EtdevWarning
from etdev.schema.stages import Listener, Step
from etdev.upstream.process import loading, set_log_level


def console() -> Console:
    """Return a console on stderr, wide enough not to fold lines where it is not a terminal."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else 200)


def complain(text: str, style: str = "", err: Console | None = None) -> None:
    """Print a line of plain text in a colour."""
    # Never folded: a message is one line, and scripts look for its beginning and end.
    shown = err or console()
    shown.print(plain(text), style=style, markup=False, highlight=False, soft_wrap=True)


def _note(stage: str, detail: str) -> str:
    """Keep the stage for the message of an interruption, and return it with its detail."""
    text = f"{stage} {detail}".rstrip()
    if context := click.get_current_context(silent=True):
        context.meta["etdev.stage"] = text
    return text


def _described(step: Step) -> str:
    return f"{step.state} {step.partition}, {step.nodes} nodes"


class LiveStages(Progress):
    """A line for each stage, and for each partition that is being compiled."""

    def __init__(self, err: Console) -> None:
        spent = TextColumn("{task.description} {task.elapsed:.1f} s", markup=False)
        super().__init__(SpinnerColumn(finished_text="✓"), spent, console=err, transient=True)
        self._stage = ""
        self._lines: dict[str, TaskID] = {}
        self._states: dict[str, str] = {}

    def __call__(self, stage: str, detail: str) -> None:
        """Begin a stage, or update its detail."""
        text = plain(_note(stage, detail))
        if stage != self._stage:
            if self._stage:
                self.update(self._lines[self._stage], description=self._stage, completed=1)
            for partition in self._states:
                self._remove(partition)
            self._stage, self._states = stage, {}
            if stage in self._lines:
                self.reset(self._lines[stage])
        if stage not in self._lines:
            self._lines[stage] = self.add_task(text, total=1)
        self.update(self._lines[stage], description=text)

    def step(self, step: Step) -> None:
        """Update the state of a partition."""
        self._states[step.partition] = step.state
        self._remove(step.partition)
        if step.state == "compiling":
            self._lines[step.partition] = self.add_task(f"  {plain(_described(step))},")
        elif step.state == "failed":
            complain(f"{_described(step)}, {step.seconds:.1f} s", "red", self.console)
        counts = sorted(Counter(self._states.values()).items())
        text = ", ".join(f"{count} {state}" for state, count in counts)
        self.update(self._lines[self._stage], description=f"{self._stage} {text},")

    def _remove(self, partition: str) -> None:
        if (line := self._lines.pop(partition, None)) is not None:
            self.remove_task(line)


class Lines:
    """A line for each stage and each partition that fails; with -v for every step, with -q none."""

    def __init__(self, err: Console) -> None:
        self._err, self._verbose, self._quiet = err, given("verbose"), given("quiet")
        self._printed: set[str] = set()

    def __call__(self, stage: str, detail: str) -> None:
        """Print a stage when it begins."""
        text = _note(stage, detail)
        if not self._quiet and (self._verbose or stage not in self._printed):
            self._printed.add(stage)
            complain(f"{text} …", err=self._err)

    def step(self, step: Step) -> None:
        """Print a partition that failed."""
        if step.state == "failed" or self._verbose:
            complain(f"{_described(step)}, {step.seconds:.1f} s …", err=self._err)


@contextmanager
def quieted() -> Iterator[Console]:
    """Print etdev's warnings as lines, and hide those of other libraries unless asked for."""
    err = console()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        complain(f"warning: {message}", "yellow", err)

    with warnings.catch_warnings():
        if not given("debug"):
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", EtdevWarning)
        warnings.showwarning = show
        yield err


@contextmanager
def working() -> Iterator[Listener]:
    """Load PyTorch and ExecuTorch, and show the stages that the command goes through."""
    with quieted() as err:
        if given("quiet") or given("verbose") or not err.is_terminal:
            lines = Lines(err)
            _load_torch(lines)
            yield lines
            return
        with LiveStages(err) as stages:
            _load_torch(stages)
            yield stages


def _load_torch(say: Listener) -> None:
    say("load", "PyTorch and ExecuTorch")
    with loading():
        import_torch()


def import_torch() -> None:
    """Import PyTorch and ExecuTorch with the logs that the user asked for."""
    if level := given("log_level"):
        number = logging.getLevelName(level.upper())
        logging.basicConfig(level=number, stream=sys.stderr, force=True)
        set_log_level(number)
    elif not given("debug"):
        # With a handler on the root logger, the libraries' calls of basicConfig have no effect.
        logging.getLogger().addHandler(logging.NullHandler())
        # Before ExecuTorch is imported, since its imports log. Errors are hidden, too: torch logs
        # the traceback of each exception that it raises.
        set_log_level(logging.CRITICAL)
    import executorch.exir  # noqa: F401
