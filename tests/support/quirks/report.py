"""The report of a row for upstream: an issue that stands alone, with a script of its repro."""

from __future__ import annotations

from etdev_reduce import report as writer

from etdev.schema.quirk import Row
from support.quirks.script import script
from support.quirks.verdict import Verdict


def report(row: Row, verdict: Verdict) -> str:
    """Return an issue in Markdown.

    Args:
        row: The row of the table.
        verdict: The verdict on its repro, on plain ExecuTorch.
    """
    reference, _, place = row.upstream.partition("; ")
    detail = verdict.detail
    if verdict.kind == "wrong":
        detail = f"in {detail.replace(':', ',', 1)}"
    elif detail.startswith("call "):
        # The error's own text, without the call that raised it.
        detail = detail.partition(": ")[2]
    return writer.report(
        row.summary,
        script(row.name),
        kind=verdict.kind,
        detail=detail,
        cause=verdict.cause,
        place=place,
        reference=reference if "#" in reference else "",
    )
