"""Locks of the setup of a Lowerer and of the files that it made."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, has
from blake3 import blake3

from etdev.delegate.cache.origins import versions
from etdev.lowering.compilation import Compilation
from etdev.lowering.lowered import Lowered
from etdev.pte.read import compiled
from etdev.registry.plugin import Plugin
from etdev.schema.device import Device
from etdev.schema.lock import Lock


def setup_of(compilation: Compilation) -> dict[str, Any]:
    """Return the setup that, with the model, determines a .pte."""
    composition = compilation.composition
    rules = composition.rules
    plugins = composition.delegating
    names = [plugin.distribution for plugin in plugins if plugin.version]
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "versions": versions(names),
        "plugins": [_plugin(plugin) for plugin in plugins],
        "devices": {
            "given": _devices(rules.devices),
            "registry": _devices(rules.registry_devices),
        },
        "pins": [str(pin) for pin in rules.pins],
        "limits": {name: asdict(limits) for name, limits in sorted(rules.limits.items())},
        "budget": asdict(rules.budget) if rules.budget else None,
        "strict": rules.strict,
        # With a fallback, another plugin takes a partition that can't be compiled on one machine.
        "on_failure": compilation.on_failure,
        # Older locks lack the key, and are of programs without simplification.
        **({"simplify": True} if composition.simplify else {}),
        # Nearly every lock lacks this key: the built-in plugin is asked.
        **({} if plugins != composition.plugins else {"portable": False}),
    }


def lock_of(compilation: Compilation, lowered: Lowered, path: Path) -> Lock:
    """Return the lock of a .pte that a lowering was saved to."""
    keys = {(o.method, o.partition): o.key for o in lowered.outcomes}
    delegates = compiled(path)
    program = {}
    for plan in lowered.plan.methods:
        named = zip(plan.delegates, delegates[plan.method], strict=True)
        payloads = {name: _digest(bytes(one.payload)) for name, one in named}
        program[plan.method] = [
            {
                "partition": partition.name,
                "plugin": partition.plugin,
                "backend": partition.backend_id,
                "device": str(partition.device),
                "key": keys.get((plan.method, partition.name), ""),
                "payload": payloads[partition.name],
            }
            for partition in plan.partitions
        ]
    beside = sorted(path.parent.glob(f"{path.stem}.*.ptd"))
    digests = {file.name.removeprefix(path.stem): _digest(file.read_bytes()) for file in beside}
    digests[path.suffix] = _digest(path.read_bytes())
    return Lock(setup_of(compilation), program, digests)


def _plugin(plugin: Plugin) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "options": _options(plugin.implementation),
    }


def _options(implementation: Any) -> dict[str, str] | str:
    """Return the options of an attrs value, as text; else the type of the object."""
    kind = type(implementation)
    if not has(kind):
        return f"{kind.__module__}.{kind.__qualname__}"
    names = [a.name for a in kind.__attrs_attrs__ if a.init and not a.name.startswith("_")]
    return {name: _text(getattr(implementation, name)) for name in names}


def _text(value: Any) -> str:
    """Return a value as text that is the same in every process."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_text, value))}]"
    plain = value is None or isinstance(value, (bool, int, float, str, Device))
    return str(value) if plain else type(value).__qualname__


def _devices(devices: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    return {
        plugin: {method: str(device) for method, device in sorted(methods.items())}
        for plugin, methods in sorted(devices.items())
        if methods
    }


def _digest(data: bytes) -> str:
    return blake3(data).hexdigest()
