"""A fake of TensorRT's closed library, under torch-tensorrt's real Python.

`import torch_tensorrt` needs libnvinfer. The code that turns a program into a delegate is Python
and needs only the library's names: this module provides them, and leaves out the package's
`__init__` files, which load the library. Engines are bytes that can't run. torch-tensorrt's Python
alone comes with `pip install --no-deps torch-tensorrt`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

# Names that each package's `__init__` would import, and their modules.
_PUBLIC = {
    "torch_tensorrt": {"Device": "_Device"},
    "torch_tensorrt.dynamo": {"compile": "_compiler"},
    "torch_tensorrt.runtime": {},
    "torch_tensorrt.dynamo.runtime": {"TorchTensorRTModule": "_TorchTensorRTModule"},
}


@contextmanager
def installed(site: Path | None = None) -> Iterator[None]:
    """torch-tensorrt can be imported, and finds the fake of TensorRT, until the context ends.

    Their ops and backends stay registered with torch and ExecuTorch, which is why a process can
    have one version only.

    Args:
        site: The folder that torch-tensorrt was installed into with pip's `--target`; None for
            that of this environment.

    Raises:
        ModuleNotFoundError: torch-tensorrt is not there.
    """
    home = _home(site)
    modules = _modules(home)
    with (
        tempfile.TemporaryDirectory() as folder,
        _loaded(modules),
        mock.patch.dict(os.environ, LD_LIBRARY_PATH=folder),
        mock.patch.object(sys, "path", [*sys.path, str(home.parent)]),
        _first_gpu(),
    ):
        # What looks for the library looks for its name.
        Path(folder, "libnvinfer.so.11").touch()
        yield


def _home(site: Path | None) -> Path:
    """Return the folder of torch-tensorrt's package, which is not imported."""
    path = None if site is None else [str(site)]
    spec = PathFinder.find_spec("torch_tensorrt", path)
    if spec is None or spec.origin is None:
        what = f"torch-tensorrt is not in {site or 'this environment'}"
        raise ModuleNotFoundError(f"{what}; pip install --no-deps torch-tensorrt")
    return Path(spec.origin).parent


@contextmanager
def _loaded(modules: dict[str, ModuleType]) -> Iterator[None]:
    """Have modules loaded until the context ends, and what they import of their own packages.

    Everything else that is imported meanwhile stays: torch registers its backends when its modules
    are imported, and does it but once.
    """
    before = {name: module for name, module in sys.modules.items() if _is_vendors(name)}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in filter(_is_vendors, list(sys.modules)):
            del sys.modules[name]
        sys.modules.update(before)


def _is_vendors(module: str) -> bool:
    return module.split(".")[0].endswith("tensorrt")


@contextmanager
def _first_gpu() -> Iterator[None]:
    """Answer torch-tensorrt's questions about the GPU, at its import and before it builds."""
    import torch

    with (
        mock.patch.object(torch.cuda, "current_device", return_value=0),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)),
        mock.patch.object(torch.cuda, "mem_get_info", return_value=(1, 1)),
    ):
        yield


@functools.cache
def _modules(home: Path) -> dict[str, ModuleType]:
    """Return the modules of torch-tensorrt and of the fake, imported once."""
    # First, because they look through the loaded modules and would find the fake.
    import executorch.exir  # noqa: F401
    import torch
    import torch._dynamo
    import torch.distributed

    before = set(sys.modules)
    sys.modules["tensorrt"] = _library()
    for name in _PUBLIC:
        _bare(name, home)
    features = _features()
    sys.modules["torch_tensorrt._features"] = features
    top: Any = sys.modules["torch_tensorrt"]
    top.ENABLED_FEATURES, top.__version__ = features.ENABLED_FEATURES, _version(home.parent)
    torch.library.define("tensorrt::execute_engine", "(Tensor[] inputs, Tensor engine) -> Tensor[]")
    register = mock.patch.object(torch._library, "register_fake_class", return_value=_unchanged)
    with _first_gpu(), register:
        # The modules import each other; only this order works.
        importlib.import_module("torch_tensorrt.dynamo.conversion")
        importlib.import_module("torch_tensorrt.dynamo._compiler")
        importlib.import_module("torch_tensorrt.executorch.partitioner")
        importlib.import_module("torch_tensorrt.dynamo.runtime.meta_ops.register_meta_ops")
    mine = filter(_is_vendors, set(sys.modules) - before)
    return {name: sys.modules.pop(name) for name in sorted(mine)}


def _version(site: Path) -> str:
    (distribution,) = importlib.metadata.distributions(name="torch-tensorrt", path=[str(site)])
    return distribution.version


def _library() -> Any:
    library: Any = mock.MagicMock(name="fake of TensorRT")
    library.__path__, library.__file__, library.__name__ = [], __file__, "tensorrt"
    library.__spec__, library.__version__ = ModuleSpec("tensorrt", None), "11.0.0"
    # torch-tensorrt calls isinstance with these, which needs classes.
    for name in ("DataType", "DeviceType", "EngineCapability", "ITensor", "TensorFormat"):
        setattr(library, name, _Enumeration(name, (), {}))
    library.tensorrt.ITensor = library.ITensor
    return library


class _Enumeration(type):
    """A class that has every member."""

    def __getattr__(cls, name: str) -> str:
        return f"{cls.__name__}.{name}"


def _bare(name: str, home: Path) -> None:
    """Register a package without its `__init__`, which would import more than is needed."""
    module: Any = ModuleType(name)

    def late(attribute: str) -> Any:
        if attribute not in _PUBLIC[name]:
            raise AttributeError(f"{name} has no {attribute} here")
        return getattr(importlib.import_module(f"{name}.{_PUBLIC[name][attribute]}"), attribute)

    module.__getattr__ = late
    module.__path__ = [str(home.joinpath(*name.split(".")[1:]))]
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    module.__spec__.submodule_search_locations = module.__path__
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def _features() -> Any:
    """`torch_tensorrt._features` with nothing enabled and decorators that change nothing."""
    features: Any = ModuleType("torch_tensorrt._features")
    features.ENABLED_FEATURES = mock.MagicMock(name="features", spec=[])
    features.ENABLED_FEATURES.__class__.__getattr__ = lambda *_: False

    def decorator(name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *given, **_: given[0] if given and callable(given[0]) else _unchanged

    features.__getattr__ = decorator
    return features


def _unchanged(thing: Any) -> Any:
    return thing
