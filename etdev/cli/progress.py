"""The progress of a command on stderr: live on a terminal, a line for each stage elsewhere."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from etdev.cli.interruption import ending_at_once
from etdev.cli.options import given
from etdev.cli.streams import plain
from etdev.delegate.executors.processes import hide_logs
from etdev.errors import EtdevWarning
from etdev.schema.stopwatch import PartitionProgress, Stopwatch
from etdev.schema.wording import counted
from etdev.upstream.shortcuts.collector import loading

# Clears the line of a spinner, which hides the cursor.
_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"


def console() -> Console:
    """Return a console on stderr, wide enough not to fold lines where it is not a terminal."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else 200, emoji=False)


def complain(text: str, style: str = "", err: Console | None = None) -> None:
    """Print a line of plain text in a colour."""
    # Never folded: a message is one line, and scripts look for its beginning and end.
    shown = err or console()
    shown.print(plain(text), style=style, markup=False, highlight=False, soft_wrap=True)


class Display:
    """A listener that shows the stages of a command, and the partitions that fail.

    On a terminal one line shows the current stage with its time. Elsewhere each stage is a line,
    with -v each step, and with -q nothing is shown.
    """

    def __init__(self, err: Console) -> None:
        self._err, self._verbose, self._quiet = err, given("verbose"), given("quiet")
        self._stages: set[str] = set()
        # Times the stages that come before a lowering's own.
        self.watch = Stopwatch(self)
        self.live: Progress | None = None
        if err.is_terminal and not self._verbose and not self._quiet:
            columns = SpinnerColumn(), TextColumn("{task.description}", markup=False)
            self.live = Progress(*columns, TimeElapsedColumn(), console=err, transient=True)
            self._line = self.live.add_task("")

    def __call__(self, stage: str, detail: str) -> None:
        """Show a stage when it begins, and its details."""
        text = f"{stage} {detail}".rstrip()
        if context := click.get_current_context(silent=True):
            # For the message of an interruption.
            context.meta["etdev.stage"] = text
        is_new = stage not in self._stages
        self._stages.add(stage)
        if self.live:
            if is_new:
                self.live.reset(self._line)
            self.live.update(self._line, description=plain(text))
        elif not self._quiet and (self._verbose or is_new):
            complain(f"{text} …", err=self._err)

    def step(self, step: PartitionProgress) -> None:
        """Print a partition that failed, or with -v each step of one."""
        if step.state == "failed" or self._verbose:
            size = counted(step.nodes, "node")
            text = f"{step.state} {step.partition}, {size}, {step.seconds:.1f} s …"
            complain(text, err=self._err)


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
def working(runs: bool = False, torch: bool = True, executorch: bool = True) -> Iterator[Display]:
    """Show the stages; load PyTorch and ExecuTorch, and start the process that runs programs."""
    if runs:
        from etdev.runtime.child import CHILD

        CHILD.start()
    with quieted() as err:
        stages = Display(err)
        with stages.live or nullcontext():
            if torch:
                what = "PyTorch and ExecuTorch" if executorch else "PyTorch"
                end = ending_at_once(f"{_SHOW_CURSOR * bool(stages.live)}interrupted: load {what}")
                with stages.watch.stage("load", what), end, loading():
                    import_torch(executorch)
            yield stages


def import_torch(executorch: bool = True) -> None:
    """Import PyTorch and ExecuTorch's compiler without their logs, unless with --debug."""
    if not given("debug"):
        # Before ExecuTorch is imported, since its imports log.
        hide_logs()
    import_module("executorch.exir" if executorch else "torch")
