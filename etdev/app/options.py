"""Options of etdev's own commands, and functions that act on their values."""

from __future__ import annotations

import re
from typing import Any

import click

from etdev.cli.lowerers import arguments, check
from etdev.cli.options import (
    FILE,
    SOURCE,
    all_rows,
    as_json,
    data,
    debug,
    given,
    lowering,
    program,
    ruling,
    runner,
    target,
    workers,
)
from etdev.cli.outputs import Output, force
from etdev.cli.writing import check as check_writing
from etdev.cli.writing import no_verify, output, write
from etdev.cli.writing import settings as writing
from etdev.errors import CacheError
from etdev.schema.caching import size_of

__all__ = [  # noqa: RUF022
    "SOURCE", "program", "data", "runner", "target", "lowering", "ruling", "workers", "check",
    "arguments", "output", "no_verify", "writing", "check_writing", "write",
    "as_json", "all_rows", "force", "debug", "given", "FILE", "Output", "SIZE", "DURATION",
]  # fmt: skip

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class _Size(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The type of an option for a number of bytes, such as `20MB`."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return the number of bytes."""
        try:
            return size_of(value)
        except CacheError as error:
            self.fail(f"{error.what}; write 20MB", param, ctx)


class _Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The type of an option for a time, such as `10m` or `90s`."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number of seconds."""
        match = _TIME.fullmatch(value.strip())
        if not match or not float(match[1]):
            self.fail(f"{value!r} is not a duration; write 10m or 90s", param, ctx)
        return float(match[1]) * _SECONDS[match[2] or "s"]


SIZE, DURATION = _Size(), _Duration()
