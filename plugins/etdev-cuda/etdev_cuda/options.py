"""Options of CudaBackend, under ExecuTorch's names; only what the installed ExecuTorch knows."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from etdev.errors import PluginError

# CudaBackend reads these from the environment while it compiles, not from compile specs.
VARIABLES = {
    "target_smem_bytes": "ET_CUDA_TARGET_SMEM_BYTES",
    "arch_list": "TORCH_CUDA_ARCH_LIST",
}


def compile_specs(options: Mapping[str, bool | int | str]) -> dict[str, str]:
    """Options as CudaBackend's compile specs; an option left out has ExecuTorch's default.

    Raises:
        PluginError: The installed ExecuTorch doesn't know an option and would ignore it.
    """
    sources = _sources() if options else ""
    for name in options:
        if f'"{VARIABLES.get(name, name)}"' not in sources:
            raise PluginError("cuda", f"the installed ExecuTorch has no option {name}", "remove it")
    return {name: _text(value) for name, value in options.items() if name not in VARIABLES}


def variables(options: Mapping[str, bool | int | str]) -> dict[str, str]:
    """Options as environment variables."""
    return {VARIABLES[name]: str(value) for name, value in options.items() if name in VARIABLES}


def inductor() -> dict[str, str]:
    """Return torch's settings and environment variables that AOTInductor reads."""
    from torch._inductor import config

    settings = {
        f"inductor.{name}": repr(value) for name, value in config.save_config_portable().items()
    }
    prefixes = ("TORCH", "TRITON", "CUDA", "ET_CUDA", "AOT")
    environment = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
    return {**settings, **environment}


def _text(value: bool | int | str) -> str:
    return ("ON" if value else "OFF") if isinstance(value, bool) else str(value)


def _sources() -> str:
    """Return the source code of CudaBackend, because it lists its options nowhere else."""
    spec = importlib.util.find_spec("executorch.backends.cuda")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.py"))]
    return "\n".join(file.read_text() for file in files)
