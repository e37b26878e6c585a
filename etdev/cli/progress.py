"""Progress: what the command line shows on stderr while it works."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.status import Status

from etdev.cli.streams import without_noise
from etdev.cli.voice import Voice
from etdev.errors import EtdevWarning

Say = Callable[[str, str], None]
_STAGE = "etdev.stage"


def console() -> Console:
    """Make a console on stderr, wide enough not to fold lines where it is not a terminal."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else 200)


def complain(text: str, style: str) -> None:
    """Print a line of plain text in a colour."""
    # Never folded: a message is one line, and scripts look for its beginning and end.
    console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def stage(context: click.Context) -> str:
    """The stage that a command has reached, with its detail; empty before the first."""
    return str(context.find_root().meta.get(_STAGE, ""))


@contextmanager
def working(debug: bool = False) -> Iterator[Say]:
    """Load PyTorch and ExecuTorch, then show stages: a spinner on a terminal, else a line each.

    Args:
        debug: Let other libraries' warnings and logs through.
    """
    voice = Voice.chosen()
    with warnings.catch_warnings(), without_noise(not debug and voice.level is None):
        if not debug:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", EtdevWarning)

        def show(message: Warning | str, *_: object, **__: object) -> None:
            complain(f"warning: {message}", "yellow")

        warnings.showwarning = show
        err = console()
        if voice.quiet or voice.verbose or not err.is_terminal:
            say = _noted(_lines(err, voice))
            _load_torch(say, debug, voice)
            yield say
            return
        with err.status("etdev") as status:
            say = _noted(_spinner(status))
            _load_torch(say, debug, voice)
            yield say


def _noted(say: Say) -> Say:
    """The same, and the command remembers the stage."""
    context = click.get_current_context(silent=True)

    def noted(stage: str, detail: str) -> None:
        if context:
            context.find_root().meta[_STAGE] = f"{stage} {detail}".rstrip()
        say(stage, detail)

    return noted


def _load_torch(say: Say, debug: bool, voice: Voice) -> None:
    say("load", "PyTorch and ExecuTorch")
    if voice.level is not None:
        logging.basicConfig(level=voice.level, stream=sys.stderr, force=True)
        import torch

        torch._logging.set_logs(all=voice.level)  # type: ignore[attr-defined]
    elif not debug:
        # With a handler on the root logger, the libraries' calls of basicConfig do nothing.
        logging.getLogger().addHandler(logging.NullHandler())
        import torch

        # Before ExecuTorch is imported, since its imports log. Not even errors: torch logs the
        # traceback of each one that it raises.
        torch._logging.set_logs(all=logging.CRITICAL)  # type: ignore[attr-defined]
    import executorch.exir  # noqa: F401


def _spinner(status: Status) -> Say:
    return lambda stage, detail: status.update(f"{stage} {detail}".rstrip())


def _lines(err: Console, voice: Voice) -> Say:
    """Print each stage once, unless all or nothing is wanted: the steps would flood a log."""
    printed: set[str] = set()

    def say(stage: str, detail: str) -> None:
        if not voice.quiet and (voice.verbose or stage not in printed):
            printed.add(stage)
            text = f"{stage} {detail}".rstrip() + " …"
            err.print(text, markup=False, highlight=False, soft_wrap=True)

    return say
