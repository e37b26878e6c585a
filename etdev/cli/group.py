"""The group of commands: each in a file, and every error one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from etdev.cli.options import debugging
from etdev.cli.progress import complain
from etdev.errors import EtdevError, first_line


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
        except KeyboardInterrupt:
            complain("interrupted", "red")
            # As shells say it of a program that Ctrl-C ended.
            raise click.exceptions.Exit(130) from None
        except BrokenPipeError:
            # Our reader closed the pipe, as `| head` does; Python's flush at exit would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as error:
            if debugging(context):
                traceback.print_exc()
            else:
                complain(_line(error), "red")
        raise click.exceptions.Exit(1)


def _line(error: Exception) -> str:
    if isinstance(error, EtdevError):
        return f"error: {error}"
    return f"internal error: {first_line(error)}; run again with --debug"
