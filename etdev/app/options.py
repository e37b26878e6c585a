"""Options of etdev's own commands, and functions that act on their values."""

from __future__ import annotations

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
    "as_json", "all_rows", "force", "debug", "given", "FILE", "Output", "SIZE",
]  # fmt: skip


class _Size(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The type of an option for a number of bytes, such as `20MB`."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return the number of bytes."""
        try:
            return size_of(value)
        except CacheError as error:
            self.fail(f"{error.what}; write 20MB", param, ctx)


SIZE = _Size()
