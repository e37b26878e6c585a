"""The group of commands, etdev's own and those of plugins; an error is one line."""

from __future__ import annotations

import os
import shlex
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pluggy

from etdev.cli.options import given
from etdev.cli.outputs import refuse_twice_named
from etdev.cli.progress import complain
from etdev.cli.streams import own_streams, results
from etdev.errors import (
    CHAINED,
    NOT_VERIFIED,
    CompileError,
    EtdevError,
    LoweringError,
    PluginError,
    VerifyError,
    close_to,
    first_line,
)
from etdev.files import forced
from etdev.registry import extensions
from etdev.registry.extensions import COMMANDS, autoload

# Folders of the code between a plugin and the command line.
_OWN = tuple(
    f"{path}{os.sep}" for path in (Path(__file__).parents[1], Path(pluggy.__file__).parent)
)


class Command(click.Command):
    """A command that writes nothing but its results to stdout."""

    def invoke(self, context: click.Context) -> Any:
        with own_streams(context, quiet=not given("debug")), forced(bool(given("force"))):
            refuse_twice_named(context)
            try:
                return super().invoke(context)
            except Exception as error:
                context.meta["etdev.reducing"] = _reducing(context.params, error)
                raise

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            if "quant" not in error.option_name:
                raise
            cure = "quantise the model in the function that SOURCE names; etdev lowers it as it is"
            more = "etdev tune --precision measures how"
            context.fail(f"No such option: {error.option_name}; {cure}, and {more}")

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        headed: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record and isinstance(parameter, click.Option):
                heading = getattr(parameter, "heading", "") or "Options"
                headed.setdefault(heading, []).append(record)
        for heading, records in headed.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class Unusable(click.Command):
    """A plugin's command that can't be used; the help shows the reason, calling it raises it."""

    def __init__(self, name: str, error: PluginError) -> None:
        super().__init__(name, short_help=f"can't be used: {error.what}; {error.cure}")
        self.error = error

    def make_context(self, *_: Any, **__: Any) -> click.Context:
        raise self.error


class CommandGroup(click.Group):
    """A group that finds commands in the files of their names and in installed distributions.

    Args:
        files: Names of the files, in the order of the help. Plugins can't take these names.
    """

    def __init__(self, *arguments: Any, files: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.files = tuple(files)

    def list_commands(self, context: click.Context) -> list[str]:
        added = sorted(extensions.candidates(COMMANDS)) if autoload() else []
        return [*self.files, *(name for name in added if name not in self.files)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self.files:
            command: click.Command = import_module(f"etdev.cli.{name}").command
            return command
        if name not in extensions.candidates(COMMANDS) and name not in extensions.EXTRAS[COMMANDS]:
            return None
        return loaded(COMMANDS, name)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        known = self.list_commands(context)
        if args[0] not in known and (close := close_to(args[0], known)):
            context.fail(f"No such command {args[0]!r}; {close}")
        return super().resolve_command(context, args)

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
                complain(f"error: {_text(error)}", "red")
            else:
                complain(f"internal error: {first_line(error)}; run again with --debug", "red")
            if command := given("reducing"):
                complain(f"next: {command}")
        raise click.exceptions.Exit(1)


def loaded(group: str, name: str) -> click.Command:
    """Return the command of another distribution, or one that says why it can't be used."""
    try:
        added: click.Command = extensions.load(group, name, _fault)
    except PluginError as error:
        return Unusable(name, error)
    return added


def _reducing(arguments: Mapping[str, Any], error: Exception) -> str:
    """Return the `etdev reduce` command for a failed lowering; empty for any other error."""
    source = arguments.get("check") or arguments.get("source")
    is_wrong = isinstance(error, VerifyError) and error.who != NOT_VERIFIED
    # A refusal has no cause.
    raised = isinstance(error, LoweringError) and error.__cause__ is not None
    is_reduced = "reduce" in extensions.candidates(COMMANDS) and not given("quiet")
    if not (source and (is_wrong or raised) and is_reduced):
        return ""
    named: dict[str, Any] = {"--plugin": ",".join(arguments.get("plugins") or ())}
    named |= {f"--{key}": arguments.get(key) for key in ("registry", "inputs", "tolerance")}
    pairs = [(flag, str(value)) for flag, value in named.items() if value]
    pairs += [("--pin", str(pin)) for pin in arguments.get("pins") or ()]
    for plugin, devices in (arguments.get("devices") or {}).items():
        pairs += [("--device", f"{plugin}.{name}={device}") for name, device in devices.items()]
    return shlex.join(["etdev", "reduce", source, *chain(*pairs), "-o", "fault"])


def _text(error: EtdevError) -> str:
    """Return an error and, if it is about another one that a plugin raised, the plugin's line."""
    text = str(error)
    if not (text.endswith(CHAINED) or isinstance(error, CompileError)):
        return text
    place = _raised_at(error.__cause__)
    more = f"raised at {place}, --debug shows the traceback" if place else "--debug shows more"
    return f"{text.removesuffix(CHAINED).rstrip('; ')}; {more}"


def _raised_at(cause: BaseException | None) -> str:
    """Return the innermost line of the code that etdev called; empty if that raised nothing."""
    frames = traceback.extract_tb(cause.__traceback__) if cause else []
    theirs = [frame for frame in frames if not frame.filename.startswith(_OWN)]
    if not theirs:
        return ""
    folder = Path(theirs[0].filename).parent
    file, line = [(f.filename, f.lineno) for f in theirs if folder in Path(f.filename).parents][-1]
    return f"{folder.name}/{Path(file).relative_to(folder)}:{line}"


def _fault(command: object) -> str:
    kind = type(command).__name__
    return "" if isinstance(command, click.Command) else f"is a {kind}, not a click command"
