"""Distributions as pip leaves them: a module, and beside it what pip knows about it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path


def put(folder: Path, name: str, source: str, entries: Mapping[str, Mapping[str, str]]) -> None:
    """Put a distribution of one module into a folder of `sys.path`.

    Args:
        folder: The folder.
        name: What pip calls it; its module has the same name with underscores.
        source: The text of the module.
        entries: Its entry points by group, and in each by name: `{module}:thing`.
    """
    (folder / f"{name.replace('-', '_')}.py").write_text(source)
    describe(folder, name, entries)


def describe(folder: Path, name: str, entries: Mapping[str, Mapping[str, str]]) -> None:
    """Put what pip would know about a distribution into a folder; see `put`."""
    module = name.replace("-", "_")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, values in entries.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in values.items())]
    (info / "entry_points.txt").write_text("\n".join(lines).format(module=module))
    importlib.invalidate_caches()
