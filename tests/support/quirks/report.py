"""The report of a row for upstream: an issue that stands alone, with a script of its repro."""

from __future__ import annotations

import platform
from importlib import metadata

from etdev.schema.quirk import Row
from support.quirks.script import script
from support.quirks.verdict import Verdict

_EXPECTED = {
    "wrong": "The outputs are those of eager PyTorch.",
    "error": "The model is lowered and runs, and its outputs are those of eager PyTorch.",
}
_ACTUAL = {
    "wrong": "They differ: in {detail}.",
    "error": "It fails: `{detail}`.",
    "crash": "The process ends with {detail}.",
}


def report(row: Row, verdict: Verdict) -> str:
    """Return an issue in Markdown.

    Args:
        row: The row of the table.
        verdict: The verdict on its repro, on plain ExecuTorch.
    """
    reference, _, place = row.upstream.partition("; ")
    detail = verdict.detail
    if verdict.kind == "wrong":
        detail = detail.replace(":", ",", 1)
    actual = _ACTUAL[verdict.kind].format(detail=detail)
    parts = [
        f"# {row.summary.rstrip('.')}",
        f"This script shows it, with nothing but torch and ExecuTorch ({versions()}):",
        f"```python\n{script(row.name)}```",
        f"**Expected:** {_EXPECTED.get(verdict.kind, _EXPECTED['error'])}",
        f"**Actual:** {actual}" + (f" The runtime logs `{verdict.cause}`." * bool(verdict.cause)),
        f"**Where:** {place}",
    ]
    if "#" in reference:
        parts.append(f"**See also:** {reference}")
    return "\n\n".join(parts) + "\n"


def versions() -> str:
    """Return the versions that a report is about."""
    known = [f"{name} {metadata.version(name)}" for name in ("torch", "executorch")]
    python = f"Python {platform.python_version()}"
    return ", ".join([*known, python, f"{platform.system()} {platform.machine()}"])
