"""TOML text read into values, with errors that name the lines at fault."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import TypeVar

from etdev.errors import RegistryError
from etdev.schema.structuring import CONVERTER, REFUSALS, problems

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")


def read_toml(text: str, path: Path, kind: type[T]) -> T:
    """Make a value of a TOML text, of a class that is registered with `schema.structuring.table`.

    Raises:
        RegistryError: It is not TOML, or has a key or a value that makes no sense; the text has
            each with its line, since the TOML parser keeps no positions.
    """
    try:
        data = tomllib.loads(text)
    # Also raised by numbers with thousands of digits, and by thousands of nested brackets.
    except (ValueError, RecursionError) as error:
        what = f"is not valid TOML: {error}"
        raise RegistryError(str(path), what, "correct that line") from error
    try:
        return CONVERTER.structure(data, kind)
    except REFUSALS as refusal:
        faults = [(line_of(text, fault.key) or 0, fault) for fault in problems(refusal)]
    if len(faults) == 1:
        [(line, fault)] = faults
        where = f"{path}, line {line}" if line else str(path)
        raise RegistryError(where, f"{fault.key} {fault.what}", fault.cure)
    lines = [
        f"\n  line {line}: {fault.key} {fault.what}; {fault.cure}"
        for line, fault in sorted(faults, key=lambda item: item[0])
    ]
    raise RegistryError(str(path), f"has {len(lines)} mistakes{''.join(lines)}")


def line_of(text: str, key: str) -> int | None:
    """Return the first line that sets a dotted key, as `a.b = …` or as `b = …` under `[a]`.

    `pin[1].op` is a key of the second of the tables `[[pin]]`.
    """
    table = ""
    seen: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)([^\]]+)\]", line):
            table = header[2].strip().replace('"', "")
            if header[1] == "[[":
                seen[table] += 1
                table = f"{table}[{seen[table] - 1}]"
            if table == key or table.startswith(key + "."):
                return number
        elif setting := re.match(r"\s*([\w\"'.-]+)\s*=", line):
            name = re.sub(r"[\"']", "", setting[1])
            full = f"{table}.{name}" if table else name
            if full == key or full.startswith(key + "."):
                return number
    # A key inside `{ ... }` is on the line of its table, a table inside `[ ... ]` on its key's.
    parent = re.sub(r"(\[\d+\]|\.[^.]+)$", "", key)
    return line_of(text, parent) if parent != key else None
