"""A plugin, checked and ready to be asked, one hook at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pluggy
from attrs import define, field

from etdev import hookspecs
from etdev.errors import ApiError, PluginError, close_to
from etdev.schema.limits import Limits
from etdev.schema.pins import PORTABLE
from etdev.schema.reasons import FOREIGN

# In the order of hookspecs; pluggy marks them so.
HOOKS = tuple(name for name, hook in vars(hookspecs).items() if hasattr(hook, "etdev_spec"))
_HERE = "this process"
# Owners in a plan that are not installed plugins.
RESERVED_NAMES = {
    PORTABLE: "is reserved for nodes left to portable kernels",
    FOREIGN.code: "is reserved for delegates that a program comes with",
}
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?", re.ASCII)


@define(eq=False)
class Plugin:
    """A checked plugin, ready to be asked."""

    name: str
    # The object that carries the hooks.
    implementation: Any
    distribution: str = _HERE
    version: str = ""
    limits: Limits = field(factory=Limits)
    # How an installed plugin was made: `module:object`, True if that is an ExecuTorch Partitioner,
    # and the registry's options.
    made: tuple[str, bool, Mapping[str, Any]] | None = field(default=None, repr=False)
    # It comes with etdev, and is asked after all other plugins.
    builtin: bool = False
    hooks: tuple[str, ...] = field(init=False)
    # A manager for each: every answer and every error then has exactly one possible owner.
    manager: pluggy.PluginManager = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.builtin:
            self._check_name()
        self._check_api()
        self.manager = pluggy.PluginManager(hookspecs.PROJECT)
        self.manager.add_hookspecs(hookspecs)
        try:
            self.manager.register(self.implementation, self.name)
        except pluggy.PluginValidationError as error:
            # Without the first line, which has the plugin's repr.
            what = " ".join(str(error).partition("\n")[2].split())
            raise PluginError(self.title, what, "see etdev/hookspecs.py") from error
        self._check_hooks()

    @property
    def title(self) -> str:
        """Name and distribution, for messages: `trt (etdev-trt 0.1.0)`."""
        origin = f"{self.distribution} {self.version}".strip()
        return self.name if self.distribution == _HERE else f"{self.name} ({origin})"

    def _check_name(self) -> None:
        """Refuse a name that can't be written in a registry, in an option or in a plan."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            cure = 'use letters, digits, - and _, such as name = "my-npu"'
            raise PluginError("plugins", f"{self.name!r} is not a name for a plugin", cure)
        if self.name in RESERVED_NAMES:
            raise PluginError(self.name, RESERVED_NAMES[self.name], "rename the plugin")

    def _check_api(self) -> None:
        """Refuse a plugin that was written for another version of the hooks."""
        api = getattr(self.implementation, "etdev_api", hookspecs.API)
        if type(api) is not int:
            what = f"etdev_api is {api!r}"
            raise PluginError(self.title, what, f"write etdev_api = {hookspecs.API}")
        if api != hookspecs.API:
            newer = "etdev" if api > hookspecs.API else self.distribution
            what = f"was written for version {api} of the hooks, and this etdev has {hookspecs.API}"
            raise ApiError(self.title, what, f"install a newer {newer}")

    def _check_hooks(self) -> None:
        callers = self.manager.get_hookcallers(self.implementation) or []
        self.hooks = tuple(sorted(caller.name for caller in callers))
        for name in self.hooks:
            if name not in HOOKS:
                cure = close_to(name, HOOKS) or f"the hooks are {', '.join(HOOKS)}"
                raise PluginError(self.title, f"{name} is not a hook", cure)
        for name in HOOKS:
            if name not in self.hooks and callable(getattr(self.implementation, name, None)):
                what = f"{name} is not marked as a hook"
                raise PluginError(self.title, what, "put @hookimpl above it")
        if not self.hooks:
            raise PluginError(self.title, "has no hooks", f"the hooks are {', '.join(HOOKS)}")
        wrapped = [c.name for c in callers for h in c.get_hookimpls() if h.wrapper or h.hookwrapper]
        if wrapped:
            what = f"{wrapped[0]} is a wrapper, and there is nothing to wrap"
            raise PluginError(self.title, what, "write @hookimpl, plugins are asked one by one")
