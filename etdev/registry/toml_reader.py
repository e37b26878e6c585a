"""TOML text read into values, with errors that name the lines at fault."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from etdev.errors import RegistryError, first_line
from etdev.schema.structuring import CONVERTER, REFUSALS, Problem, problems

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
# An error lists this many mistakes.
_SHOWN = 20


def read_toml(text: str, path: Path, kind: type[T]) -> T:
    """Make a value of a TOML text.

    Args:
        text: The text of the file.
        path: The file, for messages.
        kind: A class that is registered with `schema.structuring.table`, its fields named as the
            keys of the file.

    Raises:
        RegistryError: It is not TOML, or has a key or a value that makes no sense; the text has
            each with its line, since the TOML parser keeps no positions.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RegistryError(
            str(path), f"is not valid TOML: {error}", "correct that line"
        ) from error
    # Raised by numbers with thousands of digits, and by thousands of nested brackets.
    except (ValueError, RecursionError) as error:
        what = f"has a value that can't be read ({first_line(error)})"
        raise RegistryError(str(path), what, "write a shorter one") from error
    try:
        return CONVERTER.structure(data, kind)
    except REFUSALS as refusal:
        faults = list(problems(refusal))
    raise _error(path, text, faults)


def _error(path: Path, text: str, faults: Sequence[Problem]) -> RegistryError:
    # A generated file may have thousands, and the lines of each are looked for.
    placed = [(line_of(text, fault.key) or 0, fault) for fault in faults[:_SHOWN]]
    if len(faults) == 1:
        [(line, fault)] = placed
        where = f"{path}, line {line}" if line else str(path)
        return RegistryError(where, f"{fault.key} {fault.what}", fault.cure)
    lines = [
        f"\n  line {line}: {fault.key} {fault.what}; {fault.cure}"
        for line, fault in sorted(placed, key=lambda item: item[0])
    ]
    if len(faults) > _SHOWN:
        lines.append(f"\n  and {len(faults) - _SHOWN} more")
    return RegistryError(str(path), f"has {len(faults)} mistakes{''.join(lines)}")


def line_of(text: str, key: str) -> int | None:
    """Return the first line that sets a dotted key, as `a.b = …` or as `b = …` under `[a]`.

    `pin[1].op` is a key of the second of the tables `[[pin]]`.
    """
    table: str = ""
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
