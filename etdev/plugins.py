"""Plugins: how they are found, checked and called, one at a time."""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
import cattrs
import pluggy
from attrs import define, field

from etdev import hookspecs
from etdev.device import Probe
from etdev.errors import EtdevError, PluginError, first_line
from etdev.registry import Registry

GROUP = "etdev"
AUTOLOAD_OFF = "ETDEV_DISABLE_PLUGIN_AUTOLOAD"
HOOKS = (
    "claim_nodes",
    "claim_constants",
    "resolve_device",
    "keep_whole",
    "payload_device",
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
            raise PluginError(self.title, f"{unknown[0]} is no hook", _did_you_mean(unknown[0]))
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


@define
class Finding:
    """A plugin as `etdev plugins` lists it: ready, unfit, or broken and why.

    Args:
        name: Its entry-point name.
        distribution: What pip calls it; empty if it is not installed.
        version: Version of that distribution.
        plugin: The checked plugin; None if it can't be used.
        probed: What it finds on this machine; None if its probe failed.
        problem: Why it can't be used, in one line.
    """

    name: str
    distribution: str = ""
    version: str = ""
    plugin: Plugin | None = None
    probed: Probe | None = None
    problem: str = ""


def discover(registry: Registry) -> list[Finding]:
    """Every plugin that is installed or listed, in claim order, the broken ones too."""
    installed = _installed(registry)
    found = []
    for name in dict.fromkeys([*_order(registry, installed), *sorted(installed)]):
        finding = Finding(name)
        if entries := installed.get(name):
            finding.distribution, finding.version = _origin(entries[0])
        try:
            finding.plugin = _load(name, registry, installed)
            finding.probed = finding.plugin.probe()
        except EtdevError as error:
            finding.problem = f"{error.what}; {error.cure}" if error.cure else error.what
        if finding.plugin and name not in registry.names and registry.unlisted == "ignore":
            finding.plugin, finding.problem = None, f"not in {registry.path or 'the registry'}"
        found.append(finding)
    return found


def select(registry: Registry, wanted: Sequence[object] | None = None) -> list[Plugin]:
    """The plugins to ask, in claim order.

    Args:
        registry: Order, options and trust.
        wanted: Names and plugin objects, in claim order; None takes what is installed, in the
            order of the registry.

    Raises:
        PluginError: One of them is missing, broken or twice there.
    """
    if isinstance(wanted, (str, Mapping)) or not isinstance(wanted, (Sequence, type(None))):
        raise PluginError("plugins", f"{wanted!r} is no list", 'write plugins=["cpu"]')
    installed = _installed(registry)
    chosen = _chosen(registry, installed) if wanted is None else wanted
    plugins = [
        _load(item, registry, installed) if isinstance(item, str) else from_object(item)
        for item in chosen
    ]
    for index, plugin in enumerate(plugins):
        if plugin.name in [other.name for other in plugins[:index]]:
            raise PluginError(plugin.name, "is there twice", "give each plugin a name of its own")
    return plugins


def from_object(item: object) -> Plugin:
    """A plugin object, or a plugin class without options, as a Plugin.

    Its name is its attribute `name`, else the name of its class or module.
    """
    if inspect.isclass(item):
        item = _build(item.__name__, item, {})
    name = getattr(item, "name", None)
    if not isinstance(name, str):
        name = getattr(item, "__name__", type(item).__name__).rpartition(".")[2]
    return Plugin(name, item)


def _chosen(registry: Registry, installed: Mapping[str, Any]) -> list[str]:
    """What a Lowerer without plugins= asks: the listed, and the unlisted if it takes them."""
    names = []
    for name in _order(registry, installed):
        if registry.entry(name).optional and name not in installed:
            continue
        # A distribution outside `trusted` is as good as not installed, unless it is demanded.
        if registry.entry(name).optional and not registry.trusts(_origin(installed[name][0])[0]):
            continue
        names.append(name)
    return names


def _order(registry: Registry, installed: Mapping[str, Any]) -> list[str]:
    # By name, because entry points come back in directory order, which machines disagree on.
    autoload = not os.environ.get(AUTOLOAD_OFF)
    unlisted = sorted(set(installed) - set(registry.names)) if autoload else []
    listed = [name for name in registry.names if autoload or not registry.entry(name).optional]
    order = {"first": unlisted + listed, "last": listed + unlisted, "ignore": listed}
    return order[registry.unlisted]


def _installed(registry: Registry) -> dict[str, list[importlib.metadata.EntryPoint]]:
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        same = found.setdefault(entry.name, [])
        # One distribution seen twice on sys.path (an editable install) is no clash.
        if _origin(entry) not in [_origin(other) for other in same]:
            same.append(entry)
    # A distribution outside `trusted` can't take a name from one inside it.
    trusted = {
        name: [entry for entry in same if registry.trusts(_origin(entry)[0])]
        for name, same in found.items()
    }
    return {name: trusted[name] or same for name, same in found.items()}


def _origin(entry: importlib.metadata.EntryPoint) -> tuple[str, str]:
    distribution = entry.dist
    return (distribution.name, distribution.version) if distribution else ("unknown", "")


def _load(
    name: str, registry: Registry, installed: Mapping[str, list[importlib.metadata.EntryPoint]]
) -> Plugin:
    entries = installed.get(name)
    if not entries:
        there = (
            f"installed are {', '.join(sorted(installed))}" if installed else "none is installed"
        )
        raise PluginError(name, "not installed", f"pip install etdev-{name} ({there})")
    if len(entries) > 1:
        owners = " and ".join(sorted(_origin(entry)[0] for entry in entries))
        raise PluginError(name, f"is offered by {owners}", "uninstall one of them")
    distribution, version = _origin(entries[0])
    title = f"{name} ({distribution} {version})"
    if not registry.trusts(distribution):
        trusted = ", ".join(registry.trusted or ()) or "nothing"
        raise PluginError(
            name,
            f"{distribution} is not trusted by {registry.path}, which trusts {trusted}",
            "add it to trusted",
        )
    try:
        target = entries[0].load()
    # A script taken for a plugin calls sys.exit, which would end `etdev plugins` without a word.
    except (Exception, SystemExit) as error:
        raise PluginError(
            title, f"import failed with {first_line(error)}", "reinstall or uninstall it"
        ) from error
    return Plugin(name, _build(title, target, registry.entry(name).options), distribution, version)


def _build(title: str, target: Any, options: Mapping[str, Any]) -> Any:
    """The object an entry point stands for; a class is made with the registry's options."""
    if not inspect.isclass(target):
        if options:
            raise PluginError(title, f"takes no options, got {', '.join(options)}", "remove them")
        return target
    try:
        if attrs.has(target):
            return _options_converter().structure(dict(options), target)
        return target(**options)
    except cattrs.BaseValidationError as error:
        problems = "; ".join(cattrs.transform_error(error, "options", _problem))
        known = ", ".join(field.name for field in attrs.fields(cast(Any, target))) or "none"
        raise PluginError(title, f"bad options: {problems}", f"its options are {known}") from error
    except Exception as error:
        raise PluginError(
            title, f"could not be made: {first_line(error)}", "check its options"
        ) from error


def _options_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (bool, int, float, str):
        converter.register_structure_hook(kind, _exactly)
    return converter


def _exactly(value: Any, kind: type) -> Any:
    """No conversion: bool("false") would be True."""
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(f"{value!r} is no {kind.__name__}")


def _problem(error: BaseException, kind: type[Any] | None) -> str:
    """What is wrong with one option, in the validator's own words: they hold the value."""
    if type(error) in (TypeError, ValueError) and error.args:
        return str(error.args[0])
    return cattrs.v.format_exception(error, kind)


def _signature(error: pluggy.PluginValidationError) -> str:
    """pluggy's complaint about arguments in one line, without the plugin's repr."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[1:]) if len(lines) > 1 else " ".join(lines)


def _did_you_mean(name: str) -> str:
    close = difflib.get_close_matches(name, HOOKS, 1)
    return f"did you mean {close[0]}?" if close else f"the hooks are {', '.join(HOOKS)}"
