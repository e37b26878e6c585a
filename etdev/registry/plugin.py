"""A plugin, checked and ready to be asked, one hook at a time."""

from __future__ import annotations

import difflib
from typing import Any

import pluggy
from attrs import define, field

from etdev import hookspecs
from etdev.errors import EtdevError, PluginError, first_line
from etdev.schema.device import Probe

HOOKS = (
    "claim_nodes",
    "claim_constants",
    "resolve_device",
    "device_caveat",
    "prepare",
    "keep_whole",
    "annotate",
    "compile_context",
    "payload_device",
    "payload_data",
    "probe",
)
_HERE = "this process"


@define(eq=False)
class Plugin:
    """A checked plugin, ready to be asked.

    Args:
        name: Its entry-point name, or what a plugin object calls itself.
        implementation: The object that carries the hooks.
        distribution: What pip calls it; `this process` for an object handed to `Lowerer`.
        version: Version of that distribution.
    """

    name: str
    implementation: Any
    distribution: str = _HERE
    version: str = ""
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

    def ask(self, hook: str, **arguments: Any) -> Any:
        """Call one hook; None if the plugin does not have it.

        Raises:
            PluginError: The plugin raised something of its own; the text names it, the hook and
                the method. An EtdevError of the plugin passes as it is.
        """
        try:
            answers = getattr(self._manager.hook, hook)(**arguments)
        except EtdevError:
            raise
        except (Exception, SystemExit) as error:
            method = arguments.get("method") or getattr(arguments.get("partition"), "method", "")
            place = f" for method {method!r}" if method else ""
            raise PluginError(
                self.name, f"{hook} raised {first_line(error)}{place}", "the cause is chained below"
            ) from error
        return answers[0] if answers else None

    def probe(self) -> Probe:
        """What it finds on this machine."""
        answer = self.ask("probe")
        if not isinstance(answer, Probe | None):
            raise PluginError(
                self.name, f"probe returned {answer!r}", 'return a Probe, such as Probe(["cpu"])'
            )
        return answer or Probe()

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
