"""A plugin, checked and ready to be asked, one hook at a time."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pluggy
from attrs import define, field

from etdev import hookspecs
from etdev.errors import ApiError, EtdevError, PluginError, first_line
from etdev.schema.limits import Limits
from etdev.schema.pins import PORTABLE
from etdev.schema.reasons import FOREIGN

# In the order of hookspecs; pluggy marks them so.
HOOKS = tuple(name for name, hook in vars(hookspecs).items() if hasattr(hook, "etdev_spec"))
_HERE = "this process"
# Who a plan says a node belongs to if it is no plugin's.
RESERVED_NAMES = {
    PORTABLE: "is reserved for nodes left to portable kernels",
    FOREIGN.code: "is reserved for delegates that a program comes with",
}
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?", re.ASCII)


def check_name(name: object) -> None:
    """Refuse a name that can't be written in a registry, in an option or in a plan.

    Raises:
        PluginError: The text has the name.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        cure = 'use letters, digits, - and _, such as name = "my-npu"'
        raise PluginError("plugins", f"{name!r} is not a name for a plugin", cure)
    if name in RESERVED_NAMES:
        raise PluginError(name, RESERVED_NAMES[name], "rename the plugin")


@define(eq=False)
class Plugin:
    """A checked plugin, ready to be asked.

    Args:
        name: Its entry-point name, or what a plugin object calls itself.
        implementation: The object that carries the hooks.
        distribution: What pip calls it; `this process` for an object handed to `Lowerer`.
        version: Version of that distribution.
        limits: How long it may take.
        made: What it was made of, if it is installed: `module:object`, whether that is an
            ExecuTorch Partitioner, and the registry's options.
        builtin: It comes with etdev: it is asked after all others, about what they left.
    """

    name: str
    implementation: Any
    distribution: str = _HERE
    version: str = ""
    limits: Limits = field(factory=Limits)
    made: tuple[str, bool, Mapping[str, Any]] | None = field(default=None, repr=False)
    builtin: bool = False
    hooks: tuple[str, ...] = field(init=False)
    _manager: pluggy.PluginManager = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.builtin:
            check_name(self.name)
        try:
            self._read()
        except EtdevError:
            raise
        except Exception as error:
            what = f"its hooks can't be read: {first_line(error)}"
            raise PluginError(self.title, what, "mend its __getattr__ or __eq__") from error

    def _read(self) -> None:
        self._check_api()
        # A manager for each: every answer and every error then has exactly one possible owner.
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        try:
            self._manager.register(self.implementation, self.name)
        except pluggy.PluginValidationError as error:
            self._check_arguments()
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

    def monitor(
        self, before: Callable[..., None], after: Callable[..., None]
    ) -> Callable[[], None]:
        """Call functions around each hook, with pluggy's arguments; return how to stop."""
        return self._manager.add_hookcall_monitoring(before, after)

    def _check_api(self) -> None:
        """Refuse a plugin that was written for other hooks, before these are looked at."""
        api = getattr(self.implementation, "etdev_api", hookspecs.API)
        if type(api) is not int:
            what = f"etdev_api is {api!r}"
            raise PluginError(self.title, what, f"write etdev_api = {hookspecs.API}")
        if api != hookspecs.API:
            newer = "etdev" if api > hookspecs.API else self.distribution
            what = f"was written for version {api} of the hooks, and this etdev has {hookspecs.API}"
            raise ApiError(self.title, what, f"install a newer {newer}")

    def _check_names(self) -> None:
        unknown = [name for name in self.hooks if name not in HOOKS]
        if unknown:
            cure = _did_you_mean(unknown[0], HOOKS, "the hooks are")
            raise PluginError(self.title, f"{unknown[0]} is not a hook", cure)
        undecorated = [
            name
            for name in HOOKS
            if name not in self.hooks and callable(getattr(self.implementation, name, None))
        ]
        if undecorated:
            raise PluginError(
                self.title, f"{undecorated[0]} is not marked as a hook", "put @hookimpl above it"
            )
        if inspect.isroutine(self.implementation):
            what = f"{self.implementation.__name__} is a function, which has no hooks"
            raise PluginError(self.title, what, "name a class, an object or a module")
        if not self.hooks:
            raise PluginError(self.title, "has no hooks", f"the hooks are {', '.join(HOOKS)}")
        for caller in self._manager.get_hookcallers(self.implementation) or ():
            for hook in caller.get_hookimpls():
                self._check_kind(caller.name, hook)

    def _check_arguments(self) -> None:
        """Refuse an argument that a hook is not called with."""
        for name in HOOKS:
            known = list(inspect.signature(getattr(hookspecs, name)).parameters)
            for argument in _required(getattr(self.implementation, name, None)):
                if argument not in known:
                    cure = _did_you_mean(argument, known, "it is called with")
                    what = f"{name} has an argument {argument}, which it is not called with"
                    raise PluginError(self.title, what, cure)

    def _check_kind(self, name: str, hook: pluggy.HookImpl) -> None:
        """Refuse what pluggy or Python would not run as a plain function."""
        if inspect.iscoroutinefunction(hook.function) or inspect.isasyncgenfunction(hook.function):
            raise PluginError(self.title, f"{name} is async", "write def, nothing awaits a hook")
        if hook.wrapper or hook.hookwrapper:
            what = f"{name} is a wrapper, and there is nothing to wrap"
            raise PluginError(self.title, what, "write @hookimpl, plugins are asked one by one")


def _signature(error: pluggy.PluginValidationError) -> str:
    """pluggy's complaint about arguments in one line, without the plugin's repr."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[1:]) if len(lines) > 1 else " ".join(lines)


def _required(hook: Any) -> list[str]:
    """The arguments of a hook that have no default."""
    if not callable(hook):
        return []
    parameters = inspect.signature(hook).parameters.values()
    return [
        p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty
    ]


def _did_you_mean(name: str, known: Sequence[str], they_are: str) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"{they_are} {', '.join(known) or 'none'}"
