"""Calls of one hook of one plugin, timed and checked for the type of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from etdev.errors import CHAINED, ClaimError, EtdevError, PluginError, first_line, shown
from etdev.registry.plugin import Plugin
from etdev.registry.watchdog import waiting_for
from etdev.schema.device import Device
from etdev.schema.partition import Draft

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# `who` of errors that the values of etdev.schema raise; they don't know which plugin makes them.
_VALUES = ("claim", "device", "group", "limits")


def call(plugin: Plugin, hook: str, kind: Any, cure: str, /, **arguments: Any) -> Any:
    """Call a hook and return its answer; None if the plugin does not have the hook.

    Refuse an answer of another type, with the cure, and a change of the program. Hooks that are
    called once per partition have their program checked once, by `untouched`.
    """
    if hook not in plugin.hooks:
        return None
    partition: Draft | None = arguments.get("partition")
    method = partition.method if partition else arguments.get("method", "")
    program = None if partition else arguments.get("program")
    with untouched([plugin], hook, program, method), guarded(plugin, hook, method):
        answers = getattr(plugin.manager.hook, hook)(**arguments)
        answer = answers[0] if answers else None
        # An iterator runs code of the plugin.
        answer = list(answer) if isinstance(answer, Iterator) else answer
    if not isinstance(answer, kind | None):
        raise fault(plugin, hook, answer, cure, partition)
    return answer


def call_for_items(
    plugin: Plugin, hook: str, kind: Any, cure: str, /, **arguments: Any
) -> tuple[Any, ...]:
    """Call a hook that returns several items; none for None, and one item may come alone."""
    answer = call(plugin, hook, kind | Iterable, cure, **arguments)
    if isinstance(answer, str):
        raise fault(plugin, hook, answer, cure)
    if answer is None or isinstance(answer, kind):
        return () if answer is None else (answer,)
    # A container of the plugin's own may raise anything.
    with guarded(plugin, hook):
        items = tuple(answer)
    for item in items:
        if not isinstance(item, kind):
            raise fault(plugin, hook, answer, cure)
    return items


@contextmanager
def guarded(plugin: Plugin, what: str, method: str = "") -> Iterator[None]:
    """Name the plugin and the hook in every error, and watch how long the plugin takes."""
    place = f" for method {method!r}" if method else ""
    try:
        with waiting_for(plugin.name, f"{what}{place}", plugin.limits.hook_timeout_s):
            yield
    except EtdevError as error:
        if error.who not in _VALUES:
            raise
        raise type(error)(plugin.name, f"{what}{place}: {error.what}", error.cure) from error
    except KeyboardInterrupt as interrupt:
        # The command line prints the hook that was interrupted.
        interrupt.args = (*interrupt.args, f"plugin {plugin.name}, hook {what}")
        raise
    except BaseException as error:
        text = f"{what} raised {first_line(error)}{_node_of(error) if method else ''}{place}"
        raise PluginError(plugin.name, text, CHAINED) from error


def _node_of(error: BaseException) -> str:
    # Without a program, torch may not be imported yet.
    from etdev.graph.tracebacks import place_of

    return place_of(error)


def fault(
    plugin: Plugin, hook: str, answer: object, cure: str, partition: Draft | None = None
) -> PluginError:
    """Return the error about an answer that a hook may not give."""
    place = f" for {partition.where}" if partition else ""
    kind = ClaimError if hook.startswith("claim") else PluginError
    return kind(plugin.name, f"{hook} returned {shown(answer)}{place}", cure)


@contextmanager
def compile_context(plugin: Plugin, device: Device) -> Iterator[None]:
    """Enter the context in which the plugin's partitions for a device are compiled."""
    hook, cure = "compile_context", "return a context manager"
    given = call(plugin, hook, AbstractContextManager, cure, device=device)
    context: AbstractContextManager[object] = given or nullcontext()
    entering, leaving = (f"{when} {hook} for {device}" for when in ("entering", "leaving"))
    with guarded(plugin, entering):
        context.__enter__()
    try:
        yield
    except BaseException as error:
        # The compiler's error is raised, even if the context fails too or would hide it.
        with suppress(PluginError), guarded(plugin, leaving):
            context.__exit__(type(error), error, error.__traceback__)
        raise
    with guarded(plugin, leaving):
        context.__exit__(None, None, None)


@contextmanager
def untouched(
    plugins: Sequence[Plugin], hook: str, program: ExportedProgram | None, method: str
) -> Iterator[None]:
    """Refuse a change of the program by a hook, with the names of all plugins that were asked."""
    asked = list(dict.fromkeys(plugin.name for plugin in plugins if hook in plugin.hooks))
    if program is None or not asked:
        yield
        return
    from etdev.registry.snapshot import Snapshot

    before = Snapshot.of(program)
    yield
    if changed := before.difference(program):
        cure = "look at the program, don't change it"
        if changed.startswith("the values"):
            cure = "the model has lost them, load it again; and change a clone of them in the hook"
        elif hook == "prepare":
            cure = "change a copy.deepcopy of the program and return that"
        kind = ClaimError if hook.startswith("claim") else PluginError
        raise kind(" or ".join(asked), f"{hook} changed {changed} of method {method!r}", cure)
