"""A plugin, checked and ready to be asked, one hook at a time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import pluggy
from attrs import define, field

from etdev import hookspecs
from etdev.errors import ApiError, EtdevWarning, PluginError, close_to
from etdev.hookspecs import API, OLDEST_API
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


def check_api(title: str, distribution: str, api: Any) -> None:
    """Refuse a plugin for other versions of the hooks: of one, or from a first to a last one."""
    versions = (api,) if type(api) is int else api
    first_last = versions if isinstance(versions, tuple) and len(versions) in (1, 2) else ()
    if not first_last or any(type(number) is not int for number in first_last):
        raise PluginError(title, f"etdev_api is {api!r}", f"write etdev_api = {API}")
    first, last = first_last[0], first_last[-1]
    if first <= API and last >= OLDEST_API:
        return
    written, here = (
        f"{start}" if start == end else f"{start} to {end}"
        for start, end in ((first, last), (OLDEST_API, API))
    )
    what = f"was written for version {written} of the hooks, and this etdev has {here}"
    if distribution == _HERE:
        raise ApiError(title, what, f"write it for version {API}, see etdev/hookspecs.py")
    raise ApiError(title, what, f"install a newer {'etdev' if first > API else distribution}")


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
        check_api(self.title, self.distribution, getattr(self.implementation, "etdev_api", API))
        self.manager = pluggy.PluginManager(hookspecs.PROJECT)
        self.manager.add_hookspecs(hookspecs)
        try:
            with warnings.catch_warnings(record=True) as deprecated:
                warnings.simplefilter("always")
                self.manager.register(self.implementation, self.name)
        except pluggy.PluginValidationError as error:
            # Without the first line, which has the plugin's repr.
            what = " ".join(str(error).partition("\n")[2].split())
            raise PluginError(self.title, what, "see etdev/hookspecs.py") from error
        for warning in deprecated:
            warnings.warn(f"{self.title}: {warning.message}", EtdevWarning, stacklevel=4)
        self._check_hooks()

    @property
    def title(self) -> str:
        """Name and distribution, for messages: `trt (etdev-trt 0.1.0)`."""
        origin = f"{self.distribution} {self.version}".strip()
        return self.name if self.distribution == _HERE else f"{self.name} ({origin})"

    @property
    def idle(self) -> bool:
        """Return True if it has nothing to do as it was made, such as a quantiser without layers.

        It is then left out of a lowering that doesn't name it, and of lists.
        """
        return bool(getattr(self.implementation, "idle", False))

    def _check_name(self) -> None:
        """Refuse a name that can't be written in a registry, in an option or in a plan."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            cure = 'use letters, digits, - and _, such as name = "my-npu"'
            raise PluginError("plugins", f"{self.name!r} is not a name for a plugin", cure)
        if self.name in RESERVED_NAMES:
            raise PluginError(self.name, RESERVED_NAMES[self.name], "rename the plugin")

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
            cure = f"the hooks are {', '.join(HOOKS)}"
            if callable(getattr(self.implementation, "partition", None)):
                cure = f'make a plugin of a Partitioner: etdev.adapt(..., name="{self.name}")'
            raise PluginError(self.title, "has no hooks", cure)
        wrapped = [c.name for c in callers for h in c.get_hookimpls() if h.wrapper or h.hookwrapper]
        if wrapped:
            what = f"{wrapped[0]} is a wrapper, and there is nothing to wrap"
            raise PluginError(self.title, what, "write @hookimpl, plugins are asked one by one")
