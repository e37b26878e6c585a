"""Requirements of TensorRT on this machine, checked without importing torch."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from etdev import Device, Probe
from etdev.errors import first_line, install_hint

_INSTALL = install_hint("etdev-trt", "tensorrt")
_NOT_INSTALLED = f"torch-tensorrt is not installed; {_INSTALL}"
# The names of its wheels, for TensorRT and for TensorRT-RTX.
_DISTRIBUTIONS = ("torch-tensorrt", "torch-tensorrt-rtx")
_DRIVER = "libcuda.so.1"
_PINNED = ("torch", "executorch")
_BUDGET_SINCE = Version("2.14")
# Folders of a libnvinfer that pip didn't install, besides LD_LIBRARY_PATH.
_SYSTEM = ("/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")


def probe(budget: bool = False) -> Probe:
    """Return the GPUs of this machine, and the first thing that compiling lacks here.

    Args:
        budget: A budget for weight streaming is asked for.
    """
    return Probe(gpus(), unfit=unfit(budget))


@functools.cache
def versions() -> dict[str, str]:
    """Versions of TensorRT's distributions here, under whatever name it was installed."""
    names = {d.name: d.version for d in importlib.metadata.distributions() if d.name}
    return {name: version for name, version in names.items() if "tensorrt" in name.lower()}


def unfit(budget: bool = False) -> str | None:
    """Return why engines can't be compiled here, in one line with the cure; None if they can.

    Read from the packages' metadata, in milliseconds. torch-tensorrt is imported to find out the
    rest, but only where torch is loaded anyway, as it is before compiling.

    Args:
        budget: A budget for weight streaming is asked for.
    """
    distribution = _distribution()
    if distribution is None:
        return _NOT_INSTALLED
    name = f"torch-tensorrt {distribution.version}"
    spec = importlib.util.find_spec("torch_tensorrt")
    folders = (spec and spec.submodule_search_locations) or ()
    if not any(Path(folder, "executorch", "backend.py").is_file() for folder in folders):
        return f"{name} has no ExecuTorch backend; {_INSTALL}"
    if misfit := _misfit(distribution):
        return f"{name} {misfit}"
    if budget and Version(distribution.version) < _BUDGET_SINCE:
        return f"{name} has no weight_streaming_budget; take {_BUDGET_SINCE} or leave it out"
    if importlib.util.find_spec("tensorrt") is None or not _has_library():
        return f"TensorRT (libnvinfer) is not installed; {_INSTALL}"
    return import_backend() if "torch" in sys.modules else None


def import_backend() -> str | None:
    """Load TensorRTBackend, so that ExecuTorch finds it by name.

    Returns:
        Why that fails, in one line with the cure; None if it is loaded.
    """
    if importlib.util.find_spec("torch_tensorrt") is None:
        return _NOT_INSTALLED
    try:
        # It prints its errors to stdout, where the command line prints its results.
        with contextlib.redirect_stdout(sys.stderr):
            importlib.import_module("torch_tensorrt.executorch.backend")
    # Its __init__ raises a bare Exception if libnvinfer is missing.
    except Exception as error:
        return f"torch-tensorrt can't be imported ({first_line(error)}); {_INSTALL}"
    return None


def gpus() -> list[Device]:
    """Return the GPUs that the NVIDIA driver shows to this process.

    The driver obeys CUDA_VISIBLE_DEVICES; a Jetson and WSL have no /dev/nvidia0.
    """
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return []
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    return [Device("cuda", index) for index in range(count.value)]


def _distribution() -> importlib.metadata.Distribution | None:
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _misfit(distribution: importlib.metadata.Distribution) -> str | None:
    """Return the first requirement of torch-tensorrt that is not met here, and the cure."""
    for text in distribution.requires or ():
        pin = Requirement(text)
        if pin.name not in _PINNED or (pin.marker and not pin.marker.evaluate({"extra": pin.name})):
            continue
        requirement = f"{pin.name}{pin.specifier}"
        try:
            version = importlib.metadata.version(pin.name)
        except importlib.metadata.PackageNotFoundError:
            return f"needs {requirement}, which is not installed; pip install '{requirement}'"
        if not pin.specifier.contains(version, prereleases=True):
            return f"needs {requirement}, here is {version}; pip install '{requirement}'"
    return None


def _has_library() -> bool:
    return any(next(folder.glob("libnvinfer.so*"), None) for folder in _library_folders())


def _library_folders() -> Iterator[Path]:
    # TensorRT's wheels put its libraries into a package of their own.
    spec = importlib.util.find_spec("tensorrt_libs")
    yield from map(Path, (spec and spec.submodule_search_locations) or ())
    yield from map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))
    yield from map(Path, _SYSTEM)
