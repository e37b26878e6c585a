"""Forks for repros, some of which crash or hang, of a process that has imported ExecuTorch."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve
from etdev_reduce import forks

from support.quirks.verdict import ERROR, Verdict

LIMIT_S = 60.0
# Characters that a logged error is cut after.
_CAUSE = 120


def forked(judge: Callable[[str], Verdict], name: str, limit_s: float = LIMIT_S) -> Verdict:
    """Judge a repro in a fork of this process.

    Args:
        judge: Given the name; returns a verdict.
        name: Of the repro.
        limit_s: A verdict that takes longer is `hang`.
    """
    ended = forks.forked(lambda tell: tell(judge(name)), limit_s)
    verdict, cause = ended.result, ended.cause[:_CAUSE]
    if isinstance(verdict, Verdict):
        return evolve(verdict, cause=cause) if verdict.kind == ERROR else verdict
    if ended.hangs:
        return Verdict(name, "hang", f"no answer in {limit_s:g} s", "run", ended.seconds)
    if not ended.signal:
        # An exception ended Python: the repro itself is at fault, or this code.
        return Verdict(name, "broken", ended.log, "", ended.seconds)
    return Verdict(name, "crash", ended.signal, "run", ended.seconds, cause)
