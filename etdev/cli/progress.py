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
    """stderr; as wide as it needs to be where it is no terminal."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else 200)


def complain(text: str, style: str) -> None:
    """Print a line of plain text in a colour."""
    # Never folded: a message is one line, and scripts look for its beginning and end.
    console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def working(debug: bool = False) -> Iterator[Say]:
    """Show stages as they come: a spinner on a terminal, else a line for each.

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
            say = _lines(err)
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
        # With a handler of its own the root logger is left alone by libraries' basicConfig.
        logging.getLogger().addHandler(logging.NullHandler())
        import torch

        # Before ExecuTorch is imported, which makes other libraries talk; not even errors, as torch
        # logs the traceback of those that it raises.
        torch._logging.set_logs(all=logging.CRITICAL)  # type: ignore[attr-defined]
    import executorch.exir  # noqa: F401


def _spinner(status: Status) -> Say:
    return lambda stage, detail: status.update(f"{stage} {detail}".rstrip())


def _lines(err: Console) -> Say:
    """Say each stage once; the steps within it would flood a log."""
    said: set[str] = set()

    def say(stage: str, detail: str) -> None:
        if stage not in said:
            said.add(stage)
            text = f"{stage} {detail}".rstrip() + " …"
            err.print(text, markup=False, highlight=False, soft_wrap=True)

    return say
