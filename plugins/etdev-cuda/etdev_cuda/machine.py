"""Requirements of AOTInductor on this machine, checked without importing torch."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from packaging.version import Version

from etdev import Device, Probe
from etdev.errors import install_hint

_TORCH_CUDA = re.compile(r"^cuda\b[^=]*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
_DRIVER = "libcuda.so.1"
# Torch-TensorRT's build of ExecuTorch's runtime, with CudaBackend and XnnpackBackend.
_RUNTIME = "torch_tensorrt_executorch_runtime"


def probe() -> Probe:
    """Return the GPUs of this machine, and the first thing that compiling lacks here."""
    count = gpus()
    return Probe([Device("cuda", index) for index in range(count)], unfit=_missing(count))


def gpus() -> int:
    """Return the number of GPUs that the NVIDIA driver shows to this process."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _missing(gpu_count: int) -> str | None:
    if not _installed("executorch"):
        return "ExecuTorch is not installed; pip install executorch"
    if not _installed("triton"):
        return f"triton is not installed; {install_hint('etdev-cuda', 'compile')}"
    if torch_cuda() is None:
        return "this torch is built without CUDA; install a CUDA build of torch"
    if not gpu_count:
        return f"the NVIDIA driver ({_DRIVER}) shows no GPU; run on a machine with one"
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"AOTInductor needs a C++ compiler, and {compiler} is not installed; install one"
    return None


def makes_fatbins() -> bool:
    """Return True if Inductor finds nvcc or fatbinary, with which it adds code for newer GPUs."""
    return any(map(shutil.which, (os.environ.get("CUDACXX") or "nvcc", "fatbinary")))


def runner() -> str | None:
    """Return the runner of etdev-trt, if it and its runtime are installed; it has CudaBackend.

    From version 0.2 on that runtime adds TensorRT to executorch.runtime, which has CudaBackend in
    ExecuTorch's CUDA wheels (pytorch/TensorRT#4567, read).
    """
    if not all(map(importlib.util.find_spec, (_RUNTIME, "etdev_trt"))):
        return None
    version = importlib.metadata.version(_RUNTIME)
    return "tensorrt" if Version(version) < Version("0.2") else None


def compilers() -> dict[str, str]:
    """Versions of the compilers outside Python that AOTInductor calls, by what calls them."""
    cxx, cuda = os.environ.get("CXX", "g++"), os.environ.get("CUDA_HOME", "")
    nvcc = shutil.which("nvcc", path=f"{cuda}/bin" if cuda else None)
    commands = {"cxx": shutil.which(cxx), "nvcc": nvcc, "fatbinary": shutil.which("fatbinary")}
    return {name: _version(command) for name, command in commands.items()}


@functools.cache
def _version(command: str | None) -> str:
    if command is None:
        return "missing"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def torch_cuda() -> str | None:
    """Return the CUDA version that torch is built for, such as `13.0`; None without CUDA."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    version = Path(spec.origin).with_name("version.py")
    match = _TORCH_CUDA.search(version.read_text()) if version.is_file() else None
    return match[1] if match else None


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
