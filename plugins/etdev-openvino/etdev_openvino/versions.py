"""Versions: which of OpenVINO's packages ExecuTorch's backend works with."""

from __future__ import annotations

import importlib.metadata
import re

# Distribution, first version that works, first that doesn't. OpenVINO 2026 crashes when a .pte is
# loaded; ExecuTorch imports nncf, of which 3.0 fails with torch 2.13 and 3.3 with openvino 2025.
_NEEDED = (("openvino", (2025, 4), (2026,)), ("nncf", (3, 1), (3, 2)))


def problem() -> tuple[str, ...]:
    """What of OpenVINO is missing here or does not fit, and the cure; empty if all is well."""
    for name, first, end in _NEEDED:
        cure = f'pip install "{name}>={_text(first)},<{_text(end)}"'
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return f"{name} is not installed", cure
        if not first <= _numbers(found) < end:
            return f"{name} {found} does not fit", cure
    return ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version)[:3])


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
