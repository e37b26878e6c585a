"""The context that a plugin prepares around each call of its backend's compiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from etdev.errors import EtdevError, PluginError, first_line
from etdev.registry.calls import call, guarded
from etdev.registry.plugin import Plugin
from etdev.schema.device import Device


@contextmanager
def compile_context(plugin: Plugin, device: Device) -> Iterator[None]:
    """Enter the context in which the plugin's partitions for a device are compiled.

    Raises:
        PluginError: It is not a context manager, fails, takes too long, or hides an error of the
            compiler.
    """
    hook, cure = "compile_context", "return a context manager"
    given = call(plugin, hook, AbstractContextManager, cure, device=device)
    context: AbstractContextManager[object] = given or nullcontext()
    entering, leaving = (f"{when} {hook} for {device}" for when in ("entering", "leaving"))
    with guarded(plugin, entering):
        context.__enter__()
    try:
        yield
    except BaseException as error:
        hidden = False
        # Whatever fails now, the compiler's error comes first.
        with suppress(PluginError), guarded(plugin, leaving):
            hidden = bool(context.__exit__(type(error), error, error.__traceback__))
        if hidden and isinstance(error, Exception):
            text = error.what if isinstance(error, EtdevError) else first_line(error)
            what = f"{hook} for {device} hid an error: {text}"
            cure = "let its __exit__ return None, so that a failed partition fails"
            raise PluginError(plugin.name, what, cure) from error
        raise
    with guarded(plugin, leaving):
        context.__exit__(None, None, None)
