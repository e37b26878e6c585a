"""Contexts: what a plugin prepares in this process around each call of its backend's compiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from etdev.errors import EtdevError, PluginError, first_line
from etdev.registry.calls import call, fault
from etdev.registry.plugin import Plugin
from etdev.registry.watchdog import waiting_for
from etdev.schema.device import Device


@contextmanager
def compile_context(plugin: Plugin, device: Device) -> Iterator[None]:
    """The context in which the plugin's partitions for a device are compiled.

    Raises:
        PluginError: It is not a context manager, fails, takes too long, or hides an error of the
            compiler.
    """
    context = call(plugin, "compile_context", device=device)
    if not isinstance(context, AbstractContextManager | None):
        raise fault(plugin, "compile_context", context, "return a context manager")
    with _honest(plugin, device, context or nullcontext()):
        yield


@contextmanager
def _honest(
    plugin: Plugin, device: Device, context: AbstractContextManager[object]
) -> Iterator[None]:
    """A context that can't hide what is raised in it, and is named in what it raises itself."""
    limit_s, what = plugin.limits.hook_timeout_s, f"compile_context for {device}"
    with waiting_for(plugin.name, what, limit_s):
        try:
            context.__enter__()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _failed(plugin, device, "", error) from error
    hidden = False
    try:
        yield
    except BaseException as error:
        # The compiler's error counts, not that the context took too long to leave.
        with suppress(PluginError), waiting_for(plugin.name, f"{what} on its way out", limit_s):
            hidden = _hidden(context, error)
        if hidden:
            if not isinstance(error, Exception):
                raise
            text = error.what if isinstance(error, EtdevError) else first_line(error)
            what = f"compile_context for {device} hid an error: {text}"
            cure = "let its __exit__ return None, so that a failed partition fails"
            raise PluginError(plugin.name, what, cure) from error
        raise
    with waiting_for(plugin.name, f"{what} on its way out", limit_s):
        try:
            context.__exit__(None, None, None)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _failed(plugin, device, " on its way out", error) from error


def _hidden(context: AbstractContextManager[object], error: BaseException) -> bool:
    """End a context with an error; whether it would hide it."""
    try:
        return bool(context.__exit__(type(error), error, error.__traceback__))
    except KeyboardInterrupt:
        raise
    # Whatever goes wrong now, the compiler's error comes first.
    except BaseException:
        return False


def _failed(plugin: Plugin, device: Device, when: str, error: BaseException) -> EtdevError:
    what = f"compile_context failed for {device}{when} with {first_line(error)}"
    return PluginError(plugin.name, what, "the cause is chained below")
