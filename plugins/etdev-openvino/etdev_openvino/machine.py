"""Requirements of OpenVINO on this machine, checked without importing torch."""

from __future__ import annotations

import importlib.metadata

from packaging.requirements import Requirement

from etdev import CPU, Probe

# OpenVINO 2026.4 goes on reading the memory that it was given a delegate in, which ExecuTorch's
# runtime frees once it is loaded: a .pte that is loaded by its path crashes. 2026.3 copies it, but
# what it computes differently from PyTorch is not known. ExecuTorch imports nncf; 3.0 fails with
# torch 2.13 and 3.3 with openvino 2025.
_NEEDED = ("openvino>=2025.4,<2026", "nncf>=3.1,<3.2")


def probe() -> Probe:
    """Return the CPU, and the first package that is missing here or in the wrong version."""
    return Probe([CPU], unfit="; ".join(problem()) or None)


def device_kind(device: str) -> dict[str, str]:
    """Return OpenVINO's properties of a device of this machine."""
    from openvino import Core

    core = Core()
    names = ("FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES")
    return {name: str(core.get_property(device, name)) for name in names}


def has_bfloat16() -> bool:
    """Return True if this CPU computes in bfloat16."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def problem() -> tuple[str, ...]:
    """Return the first package that is missing or in the wrong version, and the cure; or empty."""
    for text in _NEEDED:
        needed, cure = Requirement(text), f'pip install "{text}"'
        try:
            version = importlib.metadata.version(needed.name)
        except importlib.metadata.PackageNotFoundError:
            return f"{needed.name} is not installed", cure
        if not needed.specifier.contains(version, prereleases=True):
            return f"{needed.name} {version} does not fit", cure
    return ()
