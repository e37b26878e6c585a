"""What the commands share: their options, and errors as one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from etdev.cli import progress
from etdev.errors import EtdevError, PinError, first_line
from etdev.schema.device import ANY_METHOD
from etdev.schema.pins import Pin


def _note_debug(context: click.Context, _: click.Parameter, value: bool) -> bool:
    context.find_root().meta["etdev.debug"] = value or debugging(context)
    return value


def debugging(context: click.Context | None = None) -> bool:
    """Whether --debug was given, before or after the command."""
    return bool((context or click.get_current_context()).find_root().meta.get("etdev.debug"))


debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_note_debug,
    help="Show tracebacks and other libraries' warnings.",
)
registry = click.option(
    "--registry",
    type=click.Path(path_type=Path),
    help="Registry file; ./registry.toml if there is one, else etdev's own.",
)
json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


def lowering_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that makes a Lowerer."""
    options = [
        click.option(
            "--plugin",
            "plugins",
            multiple=True,
            metavar="NAME",
            help="Ask this plugin; repeat it in claim order. All installed ones if left out.",
        ),
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
            help="Give nodes to one plugin only, such as module=encoder.layer.0:plugin=cpu, "
            "op=aten._softmax.*:plugin=portable (nobody) or node=aten_add_*:plugin=cpu.",
        ),
        click.option(
            "--strict",
            is_flag=True,
            default=None,
            help="Refuse assumed devices, and pins that match nothing or aren't kept.",
        ),
        registry,
        debug,
    ]
    for option in reversed(options):
        command = option(command)
    return command


class Group(click.Group):
    """Turns named errors into one line and exit code 1."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # The reader of our output left, such as `| head`; nobody is there to complain to.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            context.exit(1)
        except Exception as error:
            if debugging(context):
                traceback.print_exc()
            elif isinstance(error, EtdevError):
                progress.complain(f"error: {error}", "red")
            else:
                text = f"internal error: {first_line(error)}; run again with --debug"
                progress.complain(text, "red")
            context.exit(1)


def devices_of(values: Sequence[str]) -> dict[str, dict[str, str]]:
    """`["trt.forward=cuda:1"]` as devices per plugin and method."""
    pins: dict[str, dict[str, str]] = {}
    for value in values:
        where, equals, device = value.partition("=")
        plugin, _, method = where.partition(".")
        if not equals or not plugin:
            raise click.BadParameter(f"{value!r} is not PLUGIN=DEVICE", param_hint="--device")
        pins.setdefault(plugin, {})[method or ANY_METHOD] = device
    return pins


def pins_of(values: Sequence[str]) -> list[Pin]:
    """`["op=aten.add.*:plugin=cpu"]` as pins."""
    try:
        return [Pin.parse(value) for value in values]
    except PinError as error:
        raise click.BadParameter(f"{error.what}; {error.cure}", param_hint="--pin") from None
