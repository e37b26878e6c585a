"""Settings of torch and NumPy, of this thread too."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.export
from torch.nn import functional
from torch.utils import deterministic

from etdev.registry.modes import DISPATCH, FUNCTION
from etdev.registry.setting import Setting, attribute

_SMALLEST = sys.float_info.min
# Leaving one would end it.
_GUARDS: list[Any] = []


def _set_inference(on: bool) -> None:
    guard = torch.inference_mode(on)
    guard.__enter__()
    _GUARDS.append(guard)


def _autocast(device: str) -> Setting:
    def write(state: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, state[0])
        torch.set_autocast_dtype(device, state[1])

    return Setting(
        f"torch's autocast on {device}",
        lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)),
        write,
        slow=True,
    )


def _cudnn(flag: str) -> Setting:
    """A flag of cudnn, which can be set this way where torch has frozen them, too."""
    from torch.backends import cudnn

    def write(value: Any) -> None:
        cudnn.set_flags(**{f"_{flag}": value})  # type: ignore[no-untyped-call]

    return Setting(
        f"torch.backends.cudnn.{flag}", lambda: getattr(torch.backends.cudnn, flag), write
    )


def _attention(kernel: str) -> Setting:
    """Whether a kernel for attention may be chosen."""
    from torch.backends import cuda

    return Setting(
        f"torch.backends.cuda.{kernel}",
        getattr(cuda, f"{kernel}_enabled"),
        getattr(cuda, f"enable_{kernel}"),
        slow=True,
    )


def _names(place: Any) -> Setting:
    """The functions and classes of a module or class, which libraries may wrap as they see fit."""
    title = place.__name__ if inspect.ismodule(place) else f"{place.__module__}.{place.__name__}"
    held = vars(place)
    names = [name for name, value in held.items() if name[0] != "_" and callable(value)]

    def write(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if held.get(name) is not value:
                setattr(place, name, value)

    return Setting(
        f"what {title} holds",
        lambda: {name: held.get(name) for name in names},
        write,
        imported=True,
        slow=True,
        is_quiet=lambda before, after: True,
    )


def _class_names(*places: Any) -> Setting:
    """The functions of the classes of modules, which have too many of them for a setting each."""
    classes = {
        value: f"{value.__module__}.{value.__name__}"
        for place in places
        for value in vars(place).values()
        if inspect.isclass(value) and value.__module__.startswith("torch.")
    }
    functions = {
        f"{title}.{name}": (owner, vars(owner), name)
        for owner, title in classes.items()
        for name, value in vars(owner).items()
        if (name[0] != "_" or name in ("__init__", "__call__")) and callable(value)
    }

    def write(values: Mapping[str, Any]) -> None:
        for title, (owner, held, name) in functions.items():
            if held.get(name) is not values[title]:
                setattr(owner, name, values[title])

    return Setting(
        "what torch's classes hold",
        lambda: {title: held.get(name) for title, (_, held, name) in functions.items()},
        write,
        imported=True,
        slow=True,
        is_quiet=lambda before, after: True,
    )


@cache
def torch_settings() -> tuple[Setting, ...]:
    """All of them; the default device before the modes, and the inference mode before the
    grad mode, which they bring along."""
    return (
        Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Setting(
            "torch's default device",
            torch.get_default_device,
            # With "cpu" set, every op would go through a mode of torch's.
            lambda device: torch.set_default_device(None if device.type == "cpu" else device),
            slow=True,
        ),
        Setting(
            "torch's inference mode", torch.is_inference_mode_enabled, _set_inference, slow=True
        ),
        Setting("torch's grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
        Setting("torch's dispatch modes", DISPATCH.modes, DISPATCH.put, long=True, slow=True),
        Setting("torch's function modes", FUNCTION.modes, FUNCTION.put, long=True, slow=True),
        Setting(
            "torch's deterministic mode",
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
        ),
        attribute("torch's filling of new memory", deterministic, "fill_uninitialized_memory"),
        Setting(
            "torch's precision of float32 products",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        Setting(
            "torch.backends.quantized.engine",
            lambda: torch.backends.quantized.engine,
            lambda engine: setattr(torch.backends.quantized, "engine", engine),
            imported=True,
        ),
        *map(_names, (builtins, torch, functional, torch.Tensor, torch.nn.Module, torch.export)),
        _class_names(torch.nn, torch.fx, torch.export, torch.autograd),
        Setting("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
        *map(_autocast, ("cpu", "cuda")),
        *map(_cudnn, ("enabled", "benchmark", "deterministic")),
        *map(_attention, ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")),
        Setting(
            "torch.backends.mkldnn.enabled",
            lambda: torch.backends.mkldnn.enabled,
            torch.backends.mkldnn.set_flags,
            slow=True,
        ),
        Setting(
            "torch's anomaly mode",
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda state: torch.autograd.set_detect_anomaly(*state),
            slow=True,
        ),
        Setting(
            "torch's repeated warnings",
            torch.is_warn_always_enabled,
            torch.set_warn_always,
            slow=True,
        ),
        Setting(
            "the flushing of denormal numbers",
            lambda: _SMALLEST * 0.5 == 0.0,
            torch.set_flush_denormal,
            slow=True,
        ),
        Setting("NumPy's errors", np.geterr, lambda state: np.seterr(**state), slow=True),
        Setting(
            "NumPy's way of printing",
            np.get_printoptions,
            lambda options: np.set_printoptions(**options),
            slow=True,
        ),
    )
