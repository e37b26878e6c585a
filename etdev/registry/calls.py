"""Calls: one hook of one plugin is called, and what it did besides answering is looked at."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from etdev.errors import ClaimError, EtdevError, PluginError, first_line, shown
from etdev.registry.alarm import INTERRUPTIONS
from etdev.registry.plugin import Plugin
from etdev.registry.surroundings import unchanged
from etdev.registry.waiting import waiting_for
from etdev.schema.partition import Draft

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# Who our values name as the one at fault, since they don't know which plugin makes them.
_VALUES = ("claim", "device", "group", "limits")


def call(plugin: Plugin, name: str, method: str = "", /, **arguments: Any) -> Any:
    """What a hook returns, iterators as lists; None if the plugin does not have it.

    What a hook is called with for each partition, the program and the environment, is looked at
    once for all of them, by `untouched`.

    Raises:
        PluginError: The plugin raised something of its own, or left something changed. An
            EtdevError passes as it is.
    """
    if name not in plugin.hooks:
        return None
    often = "partition" in arguments
    program = None if often else arguments.get("program")
    what = f"{name}{_place(method)}"
    with _unchanged_program([plugin.name], name, program, method), guarded(plugin, name, method):
        # A context may change the process until it ends.
        still = name != "compile_context"
        with (
            unchanged(plugin.name, what, slow=not often) if still else nullcontext(),
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
    except INTERRUPTIONS:
        raise
    except BaseException as error:
        what = f"{name} raised {first_line(error)}{_place(method)}"
        raise PluginError(plugin.name, what, "the cause is chained below") from error


@contextmanager
def untouched(
    plugins: Sequence[Plugin], name: str, program: ExportedProgram | None, method: str
) -> Iterator[None]:
    """Look at a program and the environment before and after a hook is called for partitions.

    Raises:
        PluginError: Something is not what it was; the text names all plugins that were asked.
    """
    asked = list(dict.fromkeys(plugin.name for plugin in plugins if name in plugin.hooks))
    if not asked:
        yield
        return
    what = f"{name}{_place(method)}"
    with _unchanged_program(asked, name, program, method), unchanged(" or ".join(asked), what):
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
