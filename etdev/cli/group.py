"""The group of commands: each in a file, and every error one line and an exit code."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from etdev.cli.options import debugging
from etdev.cli.progress import complain, stage
from etdev.cli.streams import own_stdout, results
from etdev.errors import EtdevError, first_line

# As a shell reports a process that Ctrl-C ended: 128 and the number of the signal.
INTERRUPTED = 130


class Command(click.Command):
    """A command whose results alone reach stdout."""

    def invoke(self, context: click.Context) -> Any:
        with own_stdout(context):
            return super().invoke(context)


class Group(click.Group):
    """Imports each command from the file of its name; turns errors into a line and exit code 1.

    Args:
        files: Names of those files, in the order of the help.
    """

    def __init__(self, *arguments: Any, files: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.files = tuple(files)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.files)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.files:
            return None
        command: click.Command = import_module(f"etdev.cli.{name}").command
        return command

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # Our reader closed the pipe, as `| head` does; Python's flush at exit would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), results().fileno())
        except KeyboardInterrupt as interrupt:
            complain(_interruption(context, interrupt), "red")
            raise click.exceptions.Exit(INTERRUPTED) from None
        except Exception as error:
            if debugging(context):
                traceback.print_exc()
            else:
                complain(_line(error), "red")
        raise click.exceptions.Exit(1)


def _interruption(context: click.Context, interrupt: KeyboardInterrupt) -> str:
    """What was going on: the stage, and the plugin and hook that answers.py adds."""
    where = [stage(context), *map(str, interrupt.args)]
    return f"interrupted: {', '.join(filter(None, where))}".rstrip(": ")


def _line(error: Exception) -> str:
    if isinstance(error, EtdevError):
        return f"error: {error}"
    return f"internal error: {first_line(error)}; run again with --debug"
