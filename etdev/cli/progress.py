"""Progress: what the command line shows on stderr while it works."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

from etdev.errors import EtdevWarning

Say = Callable[[str, str], None]


def console() -> Console:
    """Make a console on stderr, wide enough not to fold lines where it is not a terminal."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else 200)


def complain(text: str, style: str) -> None:
    """Print a line of plain text in a colour."""
    # Never folded: a message is one line, and scripts look for its beginning and end.
    console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def working(debug: bool = False) -> Iterator[Say]:
    """Load PyTorch and ExecuTorch, then show stages: a spinner on a terminal, else a line each.

    Args:
        debug: Let other libraries' warnings through.
    """
    err = console()
    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", EtdevWarning)

        def show(message: Warning | str, *_: object, **__: object) -> None:
            complain(f"warning: {message}", "yellow")

        warnings.showwarning = show
        if not err.is_terminal:
            say = lines(err)
            _load_torch(say, debug)
            yield say
            return
        with err.status("etdev") as status:
            say = _spinner(status)
            _load_torch(say, debug)
            yield say


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


def _spinner(status: Status) -> Say:
    return lambda stage, detail: status.update(f"{stage} {detail}".rstrip())


def lines(err: Console) -> Say:
    """Print each stage once; the steps within it would flood a log."""
    printed: set[str] = set()

    def say(stage: str, detail: str) -> None:
        if stage not in printed:
            printed.add(stage)
            text = f"{stage} {detail}".rstrip() + " …"
            err.print(text, markup=False, highlight=False, soft_wrap=True)

    return say
