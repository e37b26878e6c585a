"""A plugin, checked and ready to be asked, one hook at a time."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import pluggy
from attrs import define, field

from etdev import hookspecs
from etdev.errors import PluginError

# In the order of hookspecs; pluggy marks them so.
HOOKS = tuple(name for name, hook in vars(hookspecs).items() if hasattr(hook, "etdev_spec"))
_HERE = "this process"


@define(eq=False)
class Plugin:
    """A checked plugin, ready to be asked.

    Args:
        name: Its entry-point name, or what a plugin object calls itself.
        implementation: The object that carries the hooks.
        distribution: What pip calls it; `this process` for an object handed to `Lowerer`.
        version: Version of that distribution.
        made: What it was made of, if it is installed: `module:object`, whether that is an
            ExecuTorch Partitioner, and the registry's options.
    """

    name: str
    implementation: Any
    distribution: str = _HERE
    version: str = ""
    made: tuple[str, bool, Mapping[str, Any]] | None = field(default=None, repr=False)
    hooks: tuple[str, ...] = field(init=False)
    _manager: pluggy.PluginManager = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        # A manager for each: every answer and every error then has exactly one possible owner.
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        try:
            self._manager.register(self.implementation, self.name)
        except pluggy.PluginValidationError as error:
            raise PluginError(self.title, _signature(error), "see etdev/hookspecs.py") from error
        callers = self._manager.get_hookcallers(self.implementation) or []
        self.hooks = tuple(sorted(caller.name for caller in callers))
        self._check_names()

    @property
    def title(self) -> str:
        """Name and distribution, for messages: `trt (etdev-trt 0.1.0)`."""
        origin = f"{self.distribution} {self.version}".strip()
        return self.name if self.distribution == _HERE else f"{self.name} ({origin})"

    @property
    def hook(self) -> pluggy.HookRelay:
        """Its hooks, for etdev/registry/answers.py, which checks what they return."""
        return self._manager.hook

    def _check_names(self) -> None:
        unknown = [name for name in self.hooks if name not in HOOKS]
        if unknown:
            raise PluginError(self.title, f"{unknown[0]} is not a hook", _did_you_mean(unknown[0]))
        undecorated = [
            name
            for name in HOOKS
            if name not in self.hooks and callable(getattr(self.implementation, name, None))
        ]
        if undecorated:
            raise PluginError(
                self.title, f"{undecorated[0]} is not marked as a hook", "put @hookimpl above it"
            )
        if not self.hooks:
            raise PluginError(self.title, "has no hooks", f"the hooks are {', '.join(HOOKS)}")


def _signature(error: pluggy.PluginValidationError) -> str:
    """pluggy's complaint about arguments in one line, without the plugin's repr."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[1:]) if len(lines) > 1 else " ".join(lines)


def _did_you_mean(name: str) -> str:
    close = difflib.get_close_matches(name, HOOKS, 1)
    return f"did you mean {close[0]}?" if close else f"the hooks are {', '.join(HOOKS)}"
