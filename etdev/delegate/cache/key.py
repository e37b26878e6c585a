"""The key of a call: a digest of all that the bytes it gives depend on."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, fields, frozen, has
from blake3 import blake3
from executorch.exir.backend.backend_details import BackendDetails

from etdev.delegate.cache.canonical import Canonical
from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.faithful import Unhashable, faithful
from etdev.delegate.cache.origins import origin, versions
from etdev.delegate.compiler_calls import Call
from etdev.delegate.jobs import Job
from etdev.delegate.settings import telling
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.device import Device
from etdev.schema.outcomes import Bypass

# Which versions of which distributions a function's code is, with what wraps it; None if unknown.
Origins = tuple[str, ...] | None
# What a plugin's cache_key says.
Told = dict[str, str] | None

# Changes with what is in a key and with how partitions are handed to backends.
_VERSION = "3"


@frozen
class Name:
    """What a call is known by.

    Args:
        key: Digest of all that the bytes it gives depend on.
        place: Digest of all of that except the programs: equal for calls of one backend, in the
            same versions and under the same circumstances.
    """

    key: str
    place: str


@define
class Keys:
    """Makes the keys of one lowering's calls.

    Args:
        weights: The weights of their programs by their digests.
    """

    weights: Digests = field(factory=Digests, init=False)
    # Every call of a backend asks for them, and they don't change within a lowering.
    _origins: dict[type, tuple[Origins, ...]] = field(factory=dict, init=False)

    def name(self, call: Call, plugin: Plugin, environment: Mapping[str, str]) -> Name:
        """The name of a call, made inside the compile context of its plugin.

        Args:
            call: The call.
            plugin: Its plugin.
            environment: What the context changed in the environment of the process.

        Raises:
            Unhashable: Something that the bytes may depend on can't be told from its like.
        """
        told = [_told(plugin, job) for job in call.jobs]
        place = self._place(call, plugin, environment, told)
        return Name(_digest({**place, "jobs": self._jobs(call)}), _digest(place))

    def _place(
        self, call: Call, plugin: Plugin, environment: Mapping[str, str], told: Sequence[Told]
    ) -> dict[str, object]:
        return {
            "format": _VERSION,
            "machine": (platform.machine(), sys.platform, platform.python_version_tuple()[:2]),
            "backend": (f"{call.backend.__module__}.{call.backend.__qualname__}", call.together),
            "code": self._code(call, plugin, told),
            "device": _device(call.first.device),
            "settings": telling(),
            "context": _context(plugin, environment),
            "plugin": told,
        }

    def _code(self, call: Call, plugin: Plugin, told: Sequence[Told]) -> object:
        """Versions of the backend, of the plugin and of what both require."""
        backend = call.backend
        if backend not in self._origins:
            self._origins[backend] = tuple(map(origin, _compilers(backend)))
        origins = self._origins[backend]
        if None in origins and None in told:
            raise Unhashable(
                f"{backend.__qualname__} is not of an installed version of a distribution; "
                "the plugin can tell its version with cache_key"
            )
        names = [text.split()[0] for known in origins if known for text in known]
        names += [plugin.distribution] if plugin.version else []
        return origins, versions(names)

    def _jobs(self, call: Call) -> list[tuple[object, ...]]:
        return [self._job(call, job) for job in call.jobs]

    def _job(self, call: Call, job: Job) -> tuple[object, ...]:
        text = "\n".join(Canonical(job.program, self.weights).lines())
        specs = [(spec.key, faithful(spec.value)) for spec in job.partition.compile_specs]
        # Only a backend that compiles several methods together is told their names.
        method = job.partition.method if call.together else ""
        return method, specs, blake3(text.encode()).hexdigest()


def _digest(ingredients: Mapping[str, object]) -> str:
    digest = blake3()
    for name, value in ingredients.items():
        digest.update(f"{name}: {value!r}\n".encode())
    return str(digest.hexdigest())


def _compilers(backend: type[BackendDetails]) -> list[Callable[..., Any]]:
    """The functions of a backend that compile, and those of the backend that it goes on to."""
    equals = getattr(backend, "equals", None)
    others = [other for other in BackendDetails.__subclasses__() if other.__name__ == equals]
    return [
        function
        for known in (backend, *others)
        for function in (known.preprocess, known.preprocess_multimethod)
    ]


def _told(plugin: Plugin, job: Job) -> Told:
    answer = answers.cache_key(plugin, job.partition)
    if isinstance(answer, Bypass):
        raise Unhashable(answer.why)
    return None if answer is None else dict(sorted(answer.items()))


def _context(plugin: Plugin, environment: Mapping[str, str]) -> object:
    if "compile_context" not in plugin.hooks:
        return None
    if "cache_key" not in plugin.hooks:
        raise Unhashable(
            f"{plugin.name}'s compile_context may settle anything; implement cache_key"
        )
    implementation = plugin.implementation
    code = origin(implementation.compile_context)
    if code is None:
        raise Unhashable(f"{plugin.name}'s compile_context is not of an installed package")
    return code, sorted(environment.items()), _options(plugin)


def _options(plugin: Plugin) -> str:
    """The options of a plugin that is an attrs value, as all plugins with options are."""
    implementation = plugin.implementation
    if not has(type(implementation)):
        return ""
    try:
        return faithful(
            {
                a.name: getattr(implementation, a.name)
                for a in fields(type(implementation))
                if a.init
            }
        )
    except Unhashable as error:
        raise Unhashable(f"{plugin.name} has an option that is {error}") from None


def _device(device: Device) -> tuple[str, ...]:
    """The device, and what kind of GPU it is here: kernels are tuned for the kind."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return (str(device),)
    if device.index >= torch.cuda.device_count():
        return (str(device),)
    capability = torch.cuda.get_device_capability(device.index)
    return str(device), torch.cuda.get_device_name(device.index), str(capability)


def about(call: Call) -> dict[str, str]:
    """What people are told of an entry; the same for the same key."""
    first = call.first
    return {
        "backend": call.backend.__qualname__,
        "device": str(first.device),
        "plugin": first.plugin,
        "partitions": str(len(call.jobs)),
        "nodes": str(sum(len(job.partition.nodes) for job in call.jobs)),
    }
