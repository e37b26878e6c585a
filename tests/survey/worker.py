"""Verdicts on models, one order at a time, for a process that they may end."""

from __future__ import annotations

import os
import warnings
from functools import cache
from typing import Any

from survey import parts, processors
from survey.judge import Judge, Subject, Verdict, is_random

os.environ["ETDEV_CACHE"] = "off"


def verdict(part: str, model: str, order: str | None) -> Verdict | None:
    """Judge a model in an order; without an order, say what makes it no subject, or None."""
    warnings.simplefilter("ignore")
    try:
        if order in processors.ORDERS:
            return processors.verdict(_subject(part, model), order)
        if order is not None:
            return _judge().verdict(_subject(part, model), order)
        return _unfit(part, model)
    except Exception as error:
        return Verdict("no reference", f"{type(error).__name__}: {error}")


def _unfit(part: str, model: str) -> Verdict | None:
    if parts.is_unordered(part, model):
        return Verdict("ties")
    subject = _subject(part, model)
    if subject is None:
        return Verdict("not exported")
    return Verdict("random") if isinstance(subject, Subject) and is_random(subject) else None


@cache
def _judge() -> Judge:
    return Judge()


_last: dict[tuple[str, str], Any] = {}


def _subject(part: str, model: str) -> Any:
    if (part, model) not in _last:
        _last.clear()
        _last[part, model] = parts.subject(part, model)
    return _last[part, model]
