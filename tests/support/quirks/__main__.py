"""The verdicts on repros as a table, and reports of rows for upstream.

PYTHONPATH=tests python -m support.quirks [NAME...]
PYTHONPATH=tests python -m support.quirks report ROW...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from etdev_reduce.report import versions

from support import quirks
from support.quirks.children import LOWERER, PLAIN, Judge
from support.quirks.report import report
from support.quirks.rows import ROWS


def table(names: Sequence[str]) -> None:
    """Judge all repros, or those that are named, and print a line for each."""
    print(versions())
    print(f"{'repro':44} {'plain ExecuTorch':9} {'etdev':8}")
    plain, ours = Judge(PLAIN), Judge(LOWERER)
    for name in names or quirks.names():
        theirs, mine = plain.verdict(name), ours.verdict(name)
        print(f"{name:44} {theirs.kind:9} {mine.kind:8} {theirs.detail[:100]}".rstrip(), flush=True)
    plain.close()
    ours.close()


def reports(names: Sequence[str]) -> None:
    """Print the reports of some rows, each with what plain ExecuTorch does here."""
    plain = Judge(PLAIN)
    for name in names:
        verdict = plain.verdict(name)
        if verdict.kind == "right":
            raise SystemExit(f"{name}: right with {versions()}")
        print(report(ROWS[name], verdict))
    plain.close()


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or [""]
    reports(rest) if command == "report" else table([command, *rest] if command else [])
