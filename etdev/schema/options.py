"""The settings of a lowering: what each one means, where it may be given, and which value counts.

A new setting is a field of `Options`. The registry's parser, the command line, locks and etdev-tune
follow from it; `Lowerer` and `etdev.partitioner()` name their arguments for readers and type
checkers, and tests/unit/schema/test_options.py holds these to the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from enum import Flag, auto
from typing import Any, Literal

from attrs import Attribute, field, fields, frozen, resolve_types
from attrs.validators import ge, instance_of, optional

from etdev.errors import EtdevError
from etdev.schema.caching import CacheSettings
from etdev.schema.converters import refusing
from etdev.schema.device import ANY_METHOD, Device, devices
from etdev.schema.limits import Budget, Limits, budget, limits
from etdev.schema.pins import Pin, pins
from etdev.schema.structuring import structured
from etdev.schema.target import Target

# By plugin and method.
Devices = Mapping[str, Mapping[str, Device]]


class Surface(Flag):
    """The places where a setting may be given, and where it counts."""

    # Arguments of `Lowerer` and of `etdev.partitioner()`.
    ARGUMENT = auto()
    PARTITIONER = auto()
    REGISTRY = auto()
    # Options of each command that plans, and of those that compile.
    COMMAND = auto()
    COMPILING = auto()
    # Locks have what changes a .pte.
    LOCK = auto()


def where(
    surfaces: Surface,
    *,
    help: str,
    key: str = "",
    combine: Callable[[Any, Any], Any] | None = None,
) -> dict[str, Any]:
    """Return the metadata of a setting.

    Args:
        surfaces: Where it may be given.
        help: A sentence for the reference and for `--help`.
        key: Its key in a registry, if that is not its name.
        combine: Function of an argument, which may be None, and of the registry's value. By default
            the argument is checked against the field's type and replaces the registry's value.
    """
    return {"surfaces": surfaces, "help": help, "key": key, "combine": combine}


def _with_devices(given: Any, known: Devices) -> Devices:
    """Put devices before others; one for all methods replaces those of single ones, too."""
    table = dict(known)
    for plugin, own in devices(given).items():
        table[plugin] = own if ANY_METHOD in own else {**known.get(plugin, {}), **own}
    return table


def _with_limits(given: Any, known: Mapping[str, Limits]) -> Mapping[str, Limits]:
    own = limits(given).items()
    return {**known, **{name: each.over(known.get(name, Limits())) for name, each in own}}


_PYTHON = Surface.ARGUMENT | Surface.PARTITIONER
_REGISTRY, _COMMAND, _LOCK = Surface.REGISTRY, Surface.COMMAND, Surface.LOCK


@refusing(EtdevError, "Lowerer")
@frozen(kw_only=True)
class Options:
    """The settings of a lowering."""

    trusted: tuple[str, ...] | None = field(
        default=None,
        metadata=where(
            _REGISTRY, help="The only distributions whose plugins are imported; None trusts all."
        ),
    )
    unlisted: Literal["first", "last", "ignore"] = field(
        default="ignore",
        metadata=where(
            _REGISTRY,
            help="Where installed plugins that the file doesn't list are asked: `first`, `last`, "
            "or `ignore` for not at all.",
        ),
    )
    devices: Devices = field(
        factory=dict,
        metadata=where(
            _PYTHON | _COMMAND | _LOCK,
            help="Device of a plugin's partitions, for all methods or for one.",
            combine=_with_devices,
        ),
    )
    pins: tuple[Pin, ...] = field(
        default=(),
        metadata=where(
            _PYTHON | _REGISTRY | _COMMAND | _LOCK,
            help="Nodes that only one plugin may have; the first pin that matches a node counts.",
            key="pin",
            combine=lambda given, known: (*pins(given), *known),
        ),
    )
    limits: Mapping[str, Limits] = field(
        factory=dict,
        metadata=where(_PYTHON | _LOCK, help="Limits of each plugin.", combine=_with_limits),
    )
    budget: Budget | None = field(
        default=None,
        metadata=where(
            _PYTHON | _REGISTRY | _LOCK,
            help="Limit of nodes that may fall back to portable kernels; None sets none.",
            combine=lambda given, known: known if given is None else budget(given),
        ),
    )
    strict: bool = field(
        default=False,
        metadata=where(
            _PYTHON | _REGISTRY | _COMMAND | _LOCK,
            help="Refuse assumed devices, devices that a backend may not run on, and pins that "
            "match no node or are not kept.",
        ),
    )
    simplify: bool = field(
        default=True,
        metadata=where(
            Surface.ARGUMENT | _REGISTRY | _COMMAND | _LOCK,
            help="Remove redundant nodes before plugins are asked.",
        ),
    )
    share_state: bool = field(
        default=True,
        metadata=where(
            _PYTHON | _REGISTRY | _COMMAND | _LOCK,
            help="Keep a buffer that several methods share in PyTorch one buffer in the .pte, or "
            "give each method its own.",
        ),
    )
    portable: bool = field(
        default=True,
        metadata=where(
            _REGISTRY | _LOCK,
            help="Ask the built-in plugin of portable kernels, after all others.",
        ),
    )
    cache: CacheSettings = field(
        factory=CacheSettings,
        metadata=where(
            Surface.ARGUMENT | _REGISTRY | _COMMAND,
            help="Where compiled partitions are kept.",
            combine=CacheSettings.of,
        ),
    )
    targets: Mapping[str, Target] = field(
        factory=dict,
        metadata=where(_REGISTRY, help="Places other than this machine where programs run."),
    )
    target: Target | None = field(
        default=None,
        validator=optional(instance_of(Target)),
        metadata=where(
            Surface.ARGUMENT,
            help="Where the program will run; None for this machine.",
            combine=lambda given, _: given,
        ),
    )
    executor: Executor | None = field(
        default=None,
        validator=optional(instance_of(Executor)),
        metadata=where(
            Surface.ARGUMENT,
            help="Compiles partitions; None for this process and those of `jobs`.",
            combine=lambda given, known: known if given is None else given,
        ),
    )
    jobs: int = field(
        default=1,
        validator=ge(1),
        metadata=where(
            Surface.ARGUMENT | Surface.COMPILING,
            help="Compile in up to N processes, including this one. The .pte has the same bytes.",
        ),
    )
    on_failure: Literal["error", "fallback"] = field(
        default="error",
        metadata=where(
            _PYTHON | _REGISTRY | Surface.COMPILING | _LOCK,
            help="Stop if a partition can't be compiled, or offer it to the next plugins.",
        ),
    )

    @property
    def falls_back(self) -> bool:
        """True if another plugin may take what a compiler failed on."""
        return self.on_failure == "fallback"


resolve_types(Options)


def settings_on(surface: Surface) -> list[Attribute[Any]]:
    """Return the fields of `Options` that may be given at some place."""
    return [own for own in fields(Options) if surface in own.metadata["surfaces"]]


def resolved(arguments: Mapping[str, object], registry: Options) -> Options:
    """Return the settings that count: an argument precedes the registry, which has the defaults.

    Arguments that are None or no settings don't count.

    Raises:
        EtdevError: A setting can't be read; the class says which, such as DeviceError.
    """
    values = {}
    for own in fields(Options):
        kind: Any = own.type
        given, known = arguments.get(own.name), getattr(registry, own.name)
        if combine := own.metadata["combine"]:
            values[own.name] = combine(given, known)
        else:
            value = known if given is None else given
            values[own.name] = structured(value, kind, own.name, EtdevError)
    return Options(**values)
