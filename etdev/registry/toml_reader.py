"""Tables: keys and values that somebody wrote into a TOML file, checked and complained about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from attrs import frozen

from etdev.errors import EtdevError, RegistryError
from etdev.schema.converters import unknown_key

T = TypeVar("T")

_KINDS = {dict: "a table", list: "a list", bool: "true or false", str: "text"}


@frozen
class TableReader:
    """Complains about a key with its line, which the TOML parser does not keep.

    A key is dotted, and `pin[1].op` is one in the second of the tables `[[pin]]`.

    Args:
        text: The file's text.
        path: Its path, for messages.
    """

    text: str
    path: Path

    def keys(
        self, table: Mapping[str, Any], valid: tuple[str, ...], at: tuple[str, ...] = ()
    ) -> None:
        """Refuse a key that is none of the valid ones."""
        if found := unknown_key(table, valid):
            key, cure = found
            self.fail(".".join((*at, key)), "is an unknown key", cure)

    def typed(
        self, table: Mapping[str, Any], key: str, kind: type, default: Any, at: tuple[str, ...] = ()
    ) -> Any:
        """A value of a table, refused if it is of another kind."""
        value = table.get(key, default)
        if value is not default and not isinstance(value, kind):
            self.fail(".".join((*at, key)), f"is {value!r}", f"it must be {_KINDS[kind]}")
        return value

    def checked(self, where: str, keys: Sequence[str], make: Callable[[], T]) -> T:
        """What a value is made into; an error that begins with one of the keys is about that."""
        try:
            return make()
        except EtdevError as error:
            key, _, rest = error.what.partition(" ")
            if key in keys:
                self.fail(f"{where}.{key}", rest, error.cure)
            self.fail(where, error.what, error.cure)

    def fail(self, key: str, what: str, cure: str) -> NoReturn:
        """Raise a RegistryError that names the line of a key."""
        line = self._line(key)
        where = f"{self.path}, line {line}" if line else str(self.path)
        raise RegistryError(where, f"{key} {what}", cure)

    def _line(self, key: str) -> int | None:
        """First line that sets a dotted key, as `a.b = …` or as `b = …` under `[a]`."""
        table: str = ""
        seen: Counter[str] = Counter()
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line):
                table = header[2].replace('"', "")
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
        return self._line(parent) if parent != key else None
