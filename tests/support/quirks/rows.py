"""The rows of all tables: of quirks, the host's and plugins', and of portable kernels."""

from __future__ import annotations

from collections.abc import Iterator

from etdev_cpu.quirks import QUIRKS as CPU

from etdev.portable.quirks import QUIRKS as PORTABLE
from etdev.portable.soundness import TABLES
from etdev.quirks import QUIRKS
from etdev.schema.fault import Fault
from etdev.schema.quirk import Row
from support import quirks

ROWS: dict[str, Row] = {row.name: row for row in (*QUIRKS, *PORTABLE, *CPU)}


def rows_of(name: str) -> list[tuple[str, Fault]]:
    """Return the rows whose fault a repro shows, each behind its place; or the repro's own."""
    if name in ROWS:
        return [(f"the row {name!r}", ROWS[name])]
    return list(_kernels(name)) or [(f"the repro {name!r}", quirks.load(name).fault)]


def _kernels(name: str) -> Iterator[tuple[str, Fault]]:
    """Yield the rows of portable kernels that a repro shows, such as `kernel-cumsum-of_halves`."""
    kernels = ((op, kernel) for table in TABLES.values() for op, kernel in table.items())
    for op, kernel in kernels:
        short = str(op).partition(".")[2].removesuffix(".default")
        kind, _, repro = name.partition("-")
        computed, _, given = repro.partition("-")
        if (
            kind == "kernel"
            and computed == short
            and (not kernel.seen or given in kernel.seen.split())
        ):
            yield f"{op} in etdev/portable/soundness.py", kernel
