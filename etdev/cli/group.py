"""The group of commands, etdev's own and those of plugins; an error is one line."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from etdev.cli.options import given
from etdev.cli.progress import complain
from etdev.cli.streams import own_streams, results
from etdev.errors import EtdevError, PluginError, first_line
from etdev.registry import extensions
from etdev.registry.extensions import COMMANDS, autoload


class Command(click.Command):
    """A command that writes nothing but its results to stdout."""

    def invoke(self, context: click.Context) -> Any:
        with own_streams(context, quiet=not given("debug")):
            return super().invoke(context)


class Unusable(click.Command):
    """A plugin's command that can't be used; the help shows the reason, calling it raises it."""

    def __init__(self, name: str, error: PluginError) -> None:
        super().__init__(name, short_help=f"can't be used: {error.what}; {error.cure}")
        self.error = error

    def make_context(self, *_: Any, **__: Any) -> click.Context:
        raise self.error


class Group(click.Group):
    """A group that finds commands in the files of their names and in installed distributions.

    Args:
        files: Names of the files, in the order of the help. Plugins can't take these names.
    """

    def __init__(self, *arguments: Any, files: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.files = tuple(files)

    def list_commands(self, context: click.Context) -> list[str]:
        added = sorted(extensions.offers(COMMANDS)) if autoload() else []
        return [*self.files, *(name for name in added if name not in self.files)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self.files:
            command: click.Command = import_module(f"etdev.cli.{name}").command
            return command
        if name not in extensions.offers(COMMANDS) and name not in extensions.EXTRAS[COMMANDS]:
            return None
        return loaded(COMMANDS, name)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # The reader closed the pipe, as `| head` does; Python's flush at exit would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), results().fileno())
        except KeyboardInterrupt as interrupt:
            # The stage, then the plugin and the hook that answers.py adds.
            where = ", ".join(filter(None, [given("stage"), *map(str, interrupt.args)]))
            complain(f"interrupted: {where}".rstrip(": "), "red")
            # As a shell reports a process that Ctrl-C ended: 128 and the number of the signal.
            raise click.exceptions.Exit(130) from None
        except Exception as error:
            if given("debug"):
                traceback.print_exc()
            elif isinstance(error, EtdevError):
                complain(f"error: {error}", "red")
            else:
                complain(f"internal error: {first_line(error)}; run again with --debug", "red")
        raise click.exceptions.Exit(1)


def loaded(group: str, name: str) -> click.Command:
    """Return the command of another distribution, or one that says why it can't be used."""
    try:
        added: click.Command = extensions.load(group, name, _fault)
    except PluginError as error:
        return Unusable(name, error)
    return added


def _fault(command: object) -> str:
    kind = type(command).__name__
    return "" if isinstance(command, click.Command) else f"is a {kind}, not a click command"
