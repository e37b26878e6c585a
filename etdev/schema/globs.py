"""Globs: name patterns as in a shell, with `*`, `?` and `[abc]`; a `*` also spans dots."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache

_CLASS = re.compile(r"\[!?\]?[^\]]*\]")


def matches(pattern: str, name: str) -> bool:
    """Return True if a whole name matches a pattern; case counts."""
    return _compiled(pattern).match(name) is not None


def fault(pattern: object) -> str | None:
    """Return the fault of a pattern, to be read after its name; None for a valid glob."""
    if not isinstance(pattern, str) or not pattern:
        return f"is {pattern!r}, which is not a glob"
    # A shell reads an unclosed bracket literally, but no name has one.
    if "[" in _CLASS.sub("", pattern):
        return f"is {pattern!r}, whose [ is never closed"
    try:
        _compiled(pattern)
    except re.error as error:
        return f"is {pattern!r}, which is not a glob ({error})"
    return None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
