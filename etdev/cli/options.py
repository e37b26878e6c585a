"""Options that commands share, and the ones that may stand before or after a command's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from attrs import Attribute

from etdev.cli.completion import plugin_names, source_names
from etdev.errors import EtdevError, PinError
from etdev.registry import extensions
from etdev.schema.device import ANY_METHOD
from etdev.schema.options import Surface, settings_on
from etdev.schema.pins import Pin
from etdev.schema.target import HERE, Target, target_of

# The help of SOURCE; click gives arguments no help of their own.
SOURCE = """
SOURCE is file.pt2, package.module:function or file.py:function. The function takes no arguments
and returns (module, example inputs), or (module, example inputs, dynamic shapes), or (module,
arguments, keyword arguments, dynamic shapes), or an ExportedProgram, or a dict of method name to
one of these. Example inputs are a tuple, a tensor, or a dict of keyword arguments. A .pt2 file
whose pickles may run code is refused without --trust.
"""
FILE = click.Path(path_type=Path)


def given(name: str) -> Any:
    """Return the value of an option of the group, not of the command; None if it is not given."""
    context = click.get_current_context(silent=True)
    return context.meta.get(f"etdev.{name}") if context else None


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta[f"etdev.{parameter.name}"] = value


def remembered(*flags: str, callback: Any = _remember, **settings: Any) -> Callable[..., Any]:
    """Return an option whose value `given` returns, instead of an argument of the command."""
    return click.option(*flags, expose_value=False, callback=callback, **settings)


def together(*options: Callable[..., Any], heading: str = "") -> Callable[..., Any]:
    """Return a decorator that adds several options, listed by --help in this order.

    Args:
        options: Decorators that add options.
        heading: Their heading in the help, for those that have none.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        before: int = len(getattr(command, "__click_params__", ()))
        for option in reversed(options):
            command = option(command)
        for added in command.__click_params__[before:]:  # type: ignore[attr-defined]
            added.heading = getattr(added, "heading", "") or heading
        return command

    return add


def _devices(_: object, __: object, values: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read `["trt.forward=cuda:1"]` as devices per plugin and method."""
    devices: dict[str, dict[str, str]] = {}
    for value in values:
        where, equals, device = value.partition("=")
        plugin, _, method = where.partition(".")
        if not equals or not plugin:
            raise click.BadParameter(f"{value!r} is not PLUGIN=DEVICE", param_hint="--device")
        devices.setdefault(plugin, {})[method or ANY_METHOD] = device
    return devices


def _pins(_: object, __: object, values: Sequence[str]) -> list[Pin]:
    """Read `["op=aten.add.*:plugin=cpu"]` as pins."""
    try:
        return [Pin.parse(value) for value in values]
    except PinError as error:
        raise click.BadParameter(f"{error.what}; {error.cure}", param_hint="--pin") from None


def existing(_: object, __: object, path: Path | None) -> Path | None:
    """Refuse a file that is not there, before the long work."""
    if path and not path.exists():
        raise EtdevError(str(path), "can't be read (No such file or directory)", "check its path")
    return path


source = click.argument("source", shell_complete=lambda _, __, text: source_names(text))
program = click.argument("program", type=FILE)
data = click.option(
    "--data", type=FILE, callback=existing, help="The .ptd file, if it is not next to the .pte."
)


def _runner(_: object, __: object, name: str | None) -> str | None:
    """Refuse a runner that is not installed, before the long work."""
    if name:
        extensions.check_installed(extensions.RUNNERS, name, "python")
    return name


runner = click.option(
    "--runner",
    callback=_runner,
    metavar="NAME",
    help="Runtime that runs it: python, or one that a plugin adds, such as cpp of etdev[cpp].",
)


def _target(context: click.Context, _: object, name: str | None) -> Target | None:
    """Find the target of a name in the registry of the command."""
    model = given("cpu")
    if name in (None, HERE):
        if model:
            raise click.UsageError(f"--cpu {model} needs --target, with an emulated one")
        return None
    from etdev.registry.registry import load

    found = target_of(name, load(context.params.get("registry")).targets)
    return found.emulating(name, model) if model else found


target = together(
    click.option(
        "--target",
        callback=_target,
        metavar="NAME",
        help="Where it runs: a name of [targets] in the registry, or here for this machine, which "
        "it is if left out. Needs etdev-cpp.",
    ),
    remembered(
        "--cpu",
        # Before --target, which looks at it.
        is_eager=True,
        metavar="MODEL",
        help="The model of processor, such as cortex-a53, that a --target's emulator stands for.",
    ),
)
as_json = remembered("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
all_rows = remembered("--all", "every", is_flag=True, help="Show every row of the tables.")
registry = click.option(
    "--registry",
    type=FILE,
    # Before --target, which looks into it.
    is_eager=True,
    help="Registry file; by default ./registry.toml, else [tool.etdev] in ./pyproject.toml, else "
    "etdev's own.",
)
debug = together(
    remembered("-v", "--verbose", is_flag=True, help="Print every step."),
    remembered("-q", "--quiet", is_flag=True, help="Print only errors and warnings."),
    remembered("--debug", is_flag=True, help="Show tracebacks and other libraries' logs."),
    heading="Messages",
)
# Settings that are written in another form than their value's.
_WRITTEN = {
    "devices": click.option(
        "--device",
        "devices",
        multiple=True,
        callback=_devices,
        metavar="PLUGIN[.METHOD]=DEVICE",
        help="Pin a plugin's partitions to a device, such as trt=cuda:1.",
    ),
    "pins": click.option(
        "--pin",
        "pins",
        multiple=True,
        callback=_pins,
        metavar="KEY=GLOB:plugin=NAME",
        help="Give nodes to one plugin only, such as module=encoder.layer.0:plugin=cpu or "
        "node=aten_add_*:plugin=cpu, or to portable kernels: op=aten._softmax.*:plugin=portable.",
    ),
    "cache": together(
        click.option(
            "--cache",
            metavar="DIR|URL",
            help="Cache compiled partitions in DIR, or in a shared cache at URL behind the user's "
            "own.",
        ),
        click.option("--no-cache", is_flag=True, help="Compile every partition, and cache none."),
        heading="Compilation",
    ),
}


def _setting(own: Attribute[Any]) -> Callable[..., Any]:
    """Return the option of a setting: a switch, a choice or a number; None if it isn't given."""
    flag, form = f"--{own.name.replace('_', '-')}", dict[str, Any]()
    text = own.metadata["help"]
    if own.type is bool and own.default:
        flag, text = f"{flag}/--no-{flag[2:]}", f"{text} By default as the registry says, else yes."
    elif own.type is bool:
        form = {"is_flag": True}
    elif own.type is int:
        form = {"type": click.IntRange(1), "metavar": "N"}
    else:
        form = {"type": click.Choice(get_args(own.type))}
    return click.option(flag, own.name, default=None, help=text, **form)


def _settings(surface: Surface) -> Iterator[Callable[..., Any]]:
    for own in settings_on(surface):
        yield _WRITTEN.get(own.name) or _setting(own)


# The options of a command that makes a Lowerer, without the one that names the plugins.
ruling = together(
    *_settings(Surface.COMMAND),
    remembered("--trust", is_flag=True, help="Load a .pt2 file even if its pickles may run code."),
    registry,
    debug,
    heading="Plugins and plan",
)
lowering = together(
    click.option(
        "--plugin",
        "plugins",
        multiple=True,
        callback=lambda _, __, texts: [name for t in texts for name in t.split(",")] or None,
        shell_complete=lambda _, __, text: plugin_names(text),
        metavar="NAME[,NAME...]",
        help="Ask these plugins, in claim order. All installed plugins if left out.",
    ),
    ruling,
    heading="Plugins and plan",
)
workers = together(*_settings(Surface.COMPILING), heading="Compilation")
