"""Options that commands share, and the ones that may stand before or after a command's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

# The help of SOURCE; click gives arguments no help of their own.
SOURCE = """
SOURCE is file.pt2, package.module:function or file.py:function. The function takes no arguments
and returns (module, example inputs), or (module, example inputs, dynamic shapes), or (module,
arguments, keyword arguments, dynamic shapes), or an ExportedProgram, or a dict of method name to
one of these. Example inputs are a tuple, a tensor, or a dict of keyword arguments. A .pt2 file that
would run code when it is loaded is refused without --trust.
"""
FILE = click.Path(path_type=Path)
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


def given(name: str) -> Any:
    """Return an option's value, before or after the command's name; None if it was not given."""
    context = click.get_current_context(silent=True)
    return context.find_root().meta.get(f"etdev.{name}") if context else None


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if value:
        context.find_root().meta[f"etdev.{parameter.name}"] = value
    if given("verbose") and given("quiet"):
        raise click.UsageError("-v and -q contradict each other")
    return value


def _remembered(*flags: str, **settings: Any) -> Callable[..., Any]:
    return click.option(*flags, expose_value=False, callback=_remember, **settings)


def _together(options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Return a decorator that adds several options, listed in this order by --help."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _installed(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    """Return the plugins whose names begin with the typed text, for completion by a shell."""
    from etdev.registry.discovery import find_plugins
    from etdev.registry.registry import Registry

    return [name for name in sorted(find_plugins(Registry())) if name.startswith(typed)]


def asked(*flags: str) -> Callable[..., Any]:
    """Return the option that names the plugins to ask."""
    option: Callable[..., Any] = click.option(
        *flags,
        "plugins",
        multiple=True,
        metavar="NAME",
        shell_complete=_installed,
        help="Ask this plugin; repeat it in claim order. All installed plugins if left out.",
    )
    return option


source = click.argument("source")
program = click.argument("program", type=FILE)
data = click.option("--data", type=FILE, help="The .ptd file, if it is not next to the .pte.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
registry = click.option(
    "--registry",
    type=FILE,
    help="Registry file; ./registry.toml if it exists, else etdev's own.",
)
edges = click.option(
    "--edges",
    is_flag=True,
    help="Verify NaN, infinities and the edge values of each dtype, too.",
)
all_rows = click.option("--all", "every", is_flag=True, help="Show every row of the tables.")
debug = _together(
    (
        _remembered("-v", "--verbose", is_flag=True, help="Print every step."),
        _remembered("-q", "--quiet", is_flag=True, help="Print only errors and warnings."),
        _remembered(
            "--log-level",
            type=click.Choice(LOG_LEVELS, case_sensitive=False),
            help="Show other libraries' logs from this level on.",
        ),
        _remembered("--debug", is_flag=True, help="Show tracebacks and other libraries' warnings."),
    )
)
# The options of a command that makes a Lowerer, without the one that names the plugins.
ruling = _together(
    (
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
            "node=aten_add_*:plugin=cpu, or to portable kernels: "
            "op=aten._softmax.*:plugin=portable.",
        ),
        click.option(
            "--strict",
            is_flag=True,
            default=None,
            help="Refuse assumed devices, devices that a backend may not run on, and pins that "
            "match no node or are not kept.",
        ),
        click.option(
            "--simplify/--no-simplify",
            default=None,
            help="Remove redundant work before plugins are asked, as the registry does by default, "
            "or keep it.",
        ),
        click.option(
            "--cache",
            metavar="DIR|URL",
            help="Cache compiled partitions there; a URL is a shared cache behind the user's own.",
        ),
        click.option("--no-cache", is_flag=True, help="Compile every partition, and cache none."),
        _remembered(
            "--trust",
            is_flag=True,
            help="Load a .pt2 file even if loading it runs code that is in it.",
        ),
        registry,
        debug,
    )
)
lowering = _together((asked("--plugin"), ruling))
workers = _together(
    (
        click.option(
            "--jobs",
            type=click.IntRange(1),
            metavar="N",
            help="Compile in up to N processes, this one among them. The .pte is the same.",
        ),
        click.option(
            "--on-failure",
            type=click.Choice(["error", "fallback"]),
            help="Stop if a partition can't be compiled, or offer it to the next plugins.",
        ),
    )
)
