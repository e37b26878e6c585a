"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from etdev.cli import trust, verbosity

# The help of SOURCE, as click gives arguments none of their own.
SOURCE = """
SOURCE is file.pt2, package.module:function or file.py:function. The function takes no arguments
and returns (module, example inputs), or (module, example inputs, dynamic shapes), or (module,
arguments, keyword arguments, dynamic shapes), or an ExportedProgram, or a dict of method name to
one of these. Example inputs are a tuple, a tensor, or a dict of keyword arguments. A .pt2 file that
would run code when it is loaded is refused without --trust.
"""
FILE = click.Path(path_type=Path)


def _note_debug(context: click.Context, _: click.Parameter, value: bool) -> bool:
    context.find_root().meta["etdev.debug"] = value or debugging(context)
    return value


def debugging(context: click.Context | None = None) -> bool:
    """Whether --debug was given, before or after the command."""
    return bool((context or click.get_current_context()).find_root().meta.get("etdev.debug"))


source = click.argument("source")
program = click.argument("program", type=FILE)
data = click.option("--data", type=FILE, help="The .ptd file; else one beside it.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
registry = click.option(
    "--registry",
    type=FILE,
    help="Registry file; ./registry.toml if there is one, else etdev's own.",
)
edges = click.option(
    "--edges",
    is_flag=True,
    help="Verify NaN, infinities and the edge values of each dtype, too.",
)
all_rows = click.option("--all", "every", is_flag=True, help="Show every row of the tables.")
_debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_note_debug,
    help="Show tracebacks and other libraries' warnings.",
)


def debug(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --debug and the options of the verbosity."""
    return _debug(verbosity.options(command))


def _names(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    """The plugins that a shell completes to."""
    from etdev.registry.discovery import find_origins
    from etdev.registry.registry import Registry

    return [name for name in sorted(find_origins(Registry())) if name.startswith(typed)]


def asked(*flags: str) -> Callable[..., Any]:
    """The option that names the plugins to ask."""
    option: Callable[..., Any] = click.option(
        *flags,
        "plugins",
        multiple=True,
        metavar="NAME",
        shell_complete=_names,
        help="Ask this plugin; repeat it in claim order. All installed ones if left out.",
    )
    return option


_LOWERING = (
    click.option(
        "--device",
        "devices",
        multiple=True,
        metavar="PLUGIN[.METHOD]=DEVICE",
        help="Pin a plugin's partitions to a device, such as trt=cuda:1.",
    ),
    click.option(
        "--pin",
        "pins",
        multiple=True,
        metavar="KEY=GLOB:plugin=NAME",
        help="Give nodes to one plugin only, such as module=encoder.layer.0:plugin=cpu or "
        "node=aten_add_*:plugin=cpu, or to portable kernels: op=aten._softmax.*:plugin=portable.",
    ),
    click.option(
        "--strict",
        is_flag=True,
        default=None,
        help="Refuse assumed devices, what may not run where it is put, pins that match nothing "
        "or aren't kept.",
    ),
    click.option(
        "--simplify/--no-simplify",
        default=None,
        help="Take out what computes nothing new before plugins are asked, as the registry does by "
        "default, or leave it in.",
    ),
    click.option(
        "--cache",
        metavar="DIR|URL",
        help="Keep compiled partitions there; a URL is shared, behind the user's own folder.",
    ),
    click.option("--no-cache", is_flag=True, help="Compile everything, and keep nothing."),
    trust.option,
    registry,
    debug,
)


_COMPILING = (
    click.option(
        "--jobs",
        type=click.IntRange(1),
        metavar="N",
        help="Compile in up to N processes, this one among them. The .pte is the same.",
    ),
    click.option(
        "--on-failure",
        type=click.Choice(["error", "fallback"]),
        help="Stop if a partition can't be compiled, or leave it to the next plugins.",
    ),
)


def lowering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that makes a Lowerer."""
    decorated: Callable[..., Any] = asked("--plugin")(ruling(command))
    return decorated


def ruling(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add those options but the one that names plugins."""
    for option in reversed(_LOWERING):
        command = option(command)
    return command


def workers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that compiles."""
    for option in reversed(_COMPILING):
        command = option(command)
    return command
