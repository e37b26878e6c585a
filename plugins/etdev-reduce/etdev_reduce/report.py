"""Reports for those who can fix a fault: an issue in Markdown that stands alone."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

_NEEDED = ("torch", "executorch")
_SHOWN = "This script shows it, with "
_EXPECTED = {
    "wrong": "The outputs are those of eager PyTorch.",
    "slow": "It is about as fast as portable kernels, or faster.",
}
_RIGHT = "The model is lowered and runs, and its outputs are those of eager PyTorch."
_ACTUAL = {
    "wrong": "They differ: {}.",
    "error": "It fails: `{}`.",
    "crash": "The process ends with {}.",
    "hang": "It does not end: {}.",
    "slow": "It takes {}.",
}


def report(  # noqa: PLR0913 (the parts of an issue, by keyword)
    title: str,
    script: str,
    *,
    kind: str,
    detail: str,
    cause: str = "",
    place: str = "",
    reference: str = "",
    flows: Mapping[str, str] | None = None,
) -> str:
    """Return an issue in Markdown.

    Args:
        title: What is wrong, in one line.
        script: Source of the script that shows it.
        kind: `wrong`, `error`, `crash`, `hang` or `slow`.
        detail: What happens, in one line.
        cause: The error that ExecuTorch's runtime logs.
        place: The file at fault.
        reference: An issue about it.
        flows: What becomes of it in each flow, by name.
    """
    more = [name for name in imported(script) if name not in _NEEDED]
    needs = "nothing but torch and ExecuTorch"
    needs = f"torch, ExecuTorch and {', '.join(more)}" if more else needs
    actual = _ACTUAL[kind].format(detail.rstrip("."))
    parts = [
        f"# {title.rstrip('.')}",
        f"{_SHOWN}{needs} ({versions(script)}):",
        f"```python\n{script}```",
        f"**Expected:** {_EXPECTED.get(kind, _RIGHT)}",
        f"**Actual:** {actual}" + (f" The runtime logs `{cause}`." if cause else ""),
    ]
    if place:
        parts.append(f"**Where:** {place}")
    if reference:
        parts.append(f"**See also:** {reference}")
    if flows:
        cells = ((name, what.replace("|", "\\|")) for name, what in flows.items())
        rows = "\n".join(f"| {name} | {what} |" for name, what in cells)
        parts.append(f"| flow | result |\n|---|---|\n{rows}")
    return "\n\n".join(parts) + "\n"


def is_report(path: Path) -> bool:
    """Return True if a file is a report, and those beside it may be replaced by another one's."""
    return path.is_file() and f"\n\n{_SHOWN}" in path.read_text(errors="replace")


def imported(script: str) -> list[str]:
    """Return the packages that a script imports, but for Python's own."""
    names = dict.fromkeys(re.findall(r"^(?:import|from) (\w+)", script, re.MULTILINE))
    return [name for name in names if name not in sys.stdlib_module_names]


def versions(script: str = "") -> str:
    """Return the versions and the machine that a script is about."""
    owners = metadata.packages_distributions()
    others = (own for name in imported(script) for own in owners.get(name, ()))
    names = dict.fromkeys((*_NEEDED, *others))
    known = [f"{name} {metadata.version(name)}" for name in names]
    python = f"Python {platform.python_version()}"
    return ", ".join([*known, python, f"{platform.system()} {platform.machine()}"])
