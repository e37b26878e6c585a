"""Progress: what the command line shows on stderr while it works."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from etdev.cli.view import View
from etdev.errors import EtdevWarning
from etdev.stages import Step

Say = Callable[[str, str], None]


def console() -> Console:
    """Make a console on stderr, wide enough not to fold lines where it is not a terminal."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else 200)


def complain(text: str, style: str, err: Console | None = None) -> None:
    """Print a line of plain text in a colour."""
    # Never folded: a message is one line, and scripts look for its beginning and end.
    (err or console()).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def working(debug: bool = False) -> Iterator[Say]:
    """Load PyTorch and ExecuTorch, then show stages: a view on a terminal, else a line each.

    Args:
        debug: Let other libraries' warnings through.
    """
    err = console()
    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", EtdevWarning)

        def show(message: Warning | str, *_: object, **__: object) -> None:
            complain(f"warning: {message}", "yellow", err)

        warnings.showwarning = show
        if not err.is_terminal:
            say = lines(err)
            _load_torch(say, debug)
            yield say
            return
        view = View()
        with Live(view, console=err, transient=True):
            _load_torch(view, debug)
            yield view


def _load_torch(say: Say, debug: bool) -> None:
    say("load", "PyTorch and ExecuTorch")
    if not debug:
        # With a handler on the root logger, the libraries' calls of basicConfig do nothing.
        logging.getLogger().addHandler(logging.NullHandler())
        import torch

        # Before ExecuTorch is imported, since its imports log. Not even errors: torch logs the
        # traceback of each one that it raises.
        torch._logging.set_logs(all=logging.CRITICAL)  # type: ignore[attr-defined]
    import executorch.exir  # noqa: F401


def lines(err: Console) -> Say:
    """Print each stage once, and each partition that fails; all steps would flood a log."""
    return _Lines(err)


class _Lines:
    """Remembers which stages were printed."""

    def __init__(self, err: Console) -> None:
        self._err = err
        self._printed: set[str] = set()

    def __call__(self, stage: str, detail: str) -> None:
        if stage not in self._printed:
            self._printed.add(stage)
            self._print(f"{stage} {detail}".rstrip())

    def step(self, step: Step) -> None:
        """Print a step of a partition if it matters."""
        if step.state == "failed":
            self._print(f"failed {step.partition}, {step.nodes} nodes, {step.seconds:.1f} s")

    def _print(self, text: str) -> None:
        self._err.print(f"{text} …", markup=False, highlight=False, soft_wrap=True)
