"""The key of a call: a digest of everything that its result depends on."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import fields, frozen, has
from blake3 import blake3
from executorch.exir.backend.backend_details import BackendDetails

from etdev.delegate.cache.canonical import CanonicalProgram, Uncacheable, canonical
from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.origins import origin, versions
from etdev.delegate.compiler_calls import Call, Job
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.device import Device
from etdev.schema.outcomes import Bypass

# Changes with the contents of a key and with how partitions are handed to backends.
_VERSION = "4"
# Without it, equal machines with more threads share a cache. A plugin whose compiler depends on it
# says so with cache_key.
_NOT_IN_KEY = "threads"


def settings() -> dict[str, Any]:
    """Return the settings of torch that a compiler may read, and that a worker takes over."""
    return {
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


@frozen
class Name:
    """Two digests of what the result of a call depends on: with the programs, and without them.

    The latter is equal for calls of one backend, in the same versions and circumstances.
    """

    key: str
    place: str


def name_of(call: Call, environment: Mapping[str, str], weights: Digests) -> Name:
    """Return the name of a call, inside the compile context of its plugin.

    `environment` is what the context changed in the environment of the process.

    Raises:
        Uncacheable: Something that the result may depend on has no canonical text.
    """
    answered = [_answer(call.plugin, job) for job in call.jobs]
    place = {
        "format": _VERSION,
        "machine": (platform.machine(), sys.platform, platform.python_version_tuple()[:2]),
        "backend": (f"{call.backend.__module__}.{call.backend.__qualname__}", call.together),
        "code": _code(call, answered),
        "device": _device(call.first.device),
        "settings": _settings_in_key(),
        "context": _context(call.plugin, environment),
        "plugin": answered,
    }
    jobs = [_described(call, job, weights) for job in call.jobs]
    return Name(_digest({**place, "jobs": jobs}), _digest(place))


def _described(call: Call, job: Job, weights: Digests) -> tuple[object, ...]:
    text = "\n".join(CanonicalProgram(job.program, weights.of).lines())
    specs = [(spec.key, canonical(spec.value)) for spec in job.partition.compile_specs]
    # A backend only sees the names of methods if it compiles several together.
    method = job.partition.method if call.together else ""
    return method, specs, blake3(text.encode()).hexdigest()


def _settings_in_key() -> dict[str, Any]:
    """Return the settings that compiled bytes may depend on, also those no worker takes over."""
    known = {name: value for name, value in settings().items() if name != _NOT_IN_KEY}
    known["device"] = str(torch.get_default_device())
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            known[f"autocast {kind}"] = str(torch.get_autocast_dtype(kind))
    return known


def _digest(ingredients: Mapping[str, object]) -> str:
    digest = blake3()
    for name, value in ingredients.items():
        digest.update(f"{name}: {value!r}\n".encode())
    return str(digest.hexdigest())


def _code(call: Call, answered: Sequence[dict[str, str] | None]) -> object:
    """Return the versions of the backend, of the plugin and of what both require."""
    origins = list(map(origin, _compilers(call.backend)))
    if None in origins and None in answered:
        raise Uncacheable(
            f"{call.backend.__qualname__} is not of an installed version of a distribution; "
            "the plugin can tell its version with cache_key"
        )
    names = [text.split()[0] for known in origins if known for text in known]
    names += [call.plugin.distribution] if call.plugin.version else []
    return origins, versions(names)


def _compilers(backend: type[BackendDetails]) -> list[Callable[..., Any]]:
    """Return the functions that compile, of a backend and of the one that it `equals`."""
    equals = getattr(backend, "equals", None)
    others = [other for other in BackendDetails.__subclasses__() if other.__name__ == equals]
    return [
        function
        for known in (backend, *others)
        for function in (known.preprocess, known.preprocess_multimethod)
    ]


def _answer(plugin: Plugin, job: Job) -> dict[str, str] | None:
    answer = answers.cache_key(plugin, job.partition)
    if isinstance(answer, Bypass):
        raise Uncacheable(answer.why)
    return None if answer is None else dict(sorted(answer.items()))


def _context(plugin: Plugin, environment: Mapping[str, str]) -> object:
    if "compile_context" not in plugin.hooks:
        return None
    if "cache_key" not in plugin.hooks:
        raise Uncacheable(
            f"{plugin.name}'s compile_context may change anything; implement cache_key"
        )
    code = origin(plugin.implementation.compile_context)
    if code is None:
        raise Uncacheable(f"{plugin.name}'s compile_context is not of an installed package")
    return code, sorted(environment.items()), _options(plugin)


def _options(plugin: Plugin) -> str:
    """Return the options of a plugin that is an attrs value, as all plugins with options are."""
    implementation = plugin.implementation
    kind = type(implementation)
    if not has(kind):
        return ""
    options = {a.name: getattr(implementation, a.name) for a in fields(kind) if a.init}
    try:
        return canonical(options)
    except Uncacheable as error:
        raise Uncacheable(f"{plugin.name} has an option that is {error}") from None


def _device(device: Device) -> tuple[str, ...]:
    """Return the device with the model of the GPU here: kernels are tuned for the model."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return (str(device),)
    if device.index >= torch.cuda.device_count():
        return (str(device),)
    capability = torch.cuda.get_device_capability(device.index)
    return str(device), torch.cuda.get_device_name(device.index), str(capability)
