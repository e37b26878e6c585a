"""Calls of one hook of one plugin, with a check that the hook left the program unchanged."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from etdev.errors import ClaimError, EtdevError, PluginError, first_line, shown
from etdev.registry.plugin import Plugin
from etdev.registry.watchdog import waiting_for
from etdev.schema.partition import Draft

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# Who our values name as the one at fault, since they don't know which plugin makes them.
_VALUES = ("claim", "device", "group", "limits")


def call(plugin: Plugin, name: str, method: str = "", /, **arguments: Any) -> Any:
    """Return what a hook returns, iterators as lists; None if the plugin does not have the hook.

    Hooks that are called once per partition have their program checked once, by `untouched`.

    Raises:
        PluginError: The plugin raised an error that is no EtdevError, changed the program, or took
            too long.
    """
    if name not in plugin.hooks:
        return None
    program = None if "partition" in arguments else arguments.get("program")
    what = f"{name}{_place(method)}"
    with (
        _unchanged_program([plugin.name], name, program, method),
        guarded(plugin, name, method),
        waiting_for(plugin.name, what, plugin.limits.hook_timeout_s),
    ):
        answers = getattr(plugin.hook, name)(**arguments)
        return listed(answers[0]) if answers else None


@contextmanager
def guarded(plugin: Plugin, name: str, method: str = "") -> Iterator[None]:
    """Name the plugin and the hook in what is raised."""
    try:
        yield
    except EtdevError as error:
        if error.who not in _VALUES:
            raise
        what = f"{name}{_place(method)}: {error.what}"
        raise type(error)(plugin.name, what, error.cure) from error
    except KeyboardInterrupt as interrupt:
        # The command line says what was interrupted.
        interrupt.args = (*interrupt.args, f"plugin {plugin.name}, hook {name}")
        raise
    except BaseException as error:
        what = f"{name} raised {first_line(error)}{_place(method)}"
        raise PluginError(plugin.name, what, "the cause is chained below") from error


@contextmanager
def untouched(
    plugins: Sequence[Plugin], name: str, program: ExportedProgram, method: str
) -> Iterator[None]:
    """Check that a hook which is called once per partition leaves the program unchanged.

    Raises:
        PluginError: The program was changed; the text names all plugins that were asked.
    """
    asked = list(dict.fromkeys(plugin.name for plugin in plugins if name in plugin.hooks))
    with _unchanged_program(asked, name, program if asked else None, method):
        yield


def listed(answer: Any) -> Any:
    """An answer that runs code of the plugin when it is read, read."""
    if inspect.iscoroutine(answer):
        answer.close()
    return list(answer) if isinstance(answer, Iterator) else answer


def items(plugin: Plugin, name: str, answer: Any, cure: str) -> tuple[Any, ...]:
    """The items of an answer, none for None."""
    if answer is None:
        return ()
    # A container of the plugin's own runs code of the plugin's.
    with guarded(plugin, name):
        try:
            return tuple(answer)
        except TypeError as error:
            raise fault(plugin, name, answer, cure) from error


def fault(
    plugin: Plugin, name: str, answer: object, cure: str, partition: Draft | None = None
) -> PluginError:
    """The error about an answer that is not of the hook's kind."""
    place = f" for {partition.where}" if partition else ""
    kind = ClaimError if name.startswith("claim") else PluginError
    return kind(plugin.name, f"{name} returned {shown(answer)}{place}", cure)


@contextmanager
def _unchanged_program(
    asked: Sequence[str], name: str, program: ExportedProgram | None, method: str
) -> Iterator[None]:
    if program is None:
        yield
        return
    from etdev.graph.snapshot import Snapshot

    before = Snapshot.of(program)
    yield
    if changed := before.difference(program):
        cure = "look at the program, don't change it"
        if changed.startswith("the values"):
            cure = "the model has lost them, load it again; and change a clone of them in the hook"
        elif name == "prepare":
            cure = "change a copy.deepcopy of the program and return that"
        kind = ClaimError if name.startswith("claim") else PluginError
        raise kind(" or ".join(asked), f"{name} changed {changed} of method {method!r}", cure)


def _place(method: str) -> str:
    return f" for method {method!r}" if method else ""
