"""Globs by which pins, budgets and queries name nodes; as in a shell, and `*` also spans dots."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

_CLASS = re.compile(r"\[!?\]?[^\]]*\]")


def fault(pattern: object) -> str | None:
    """Return the fault of a pattern, to be read after its name; None for a valid glob."""
    if not isinstance(pattern, str) or not pattern:
        return f"is {pattern!r}, which is not a glob"
    # A shell reads an unclosed bracket literally, but no name has one.
    if "[" in _CLASS.sub("", pattern):
        return f"is {pattern!r}, whose [ is never closed"
    return None


def match(criteria: Any, node: str, ops: Iterable[str], modules: Iterable[str]) -> bool:
    """Return True if a node matches the globs `node`, `op` and `module` that are not None.

    Args:
        criteria: A pin or a query, which has the globs.
        node: Name of the node.
        ops: Names of its op, in the program and in the exported program.
        modules: Paths of its source module and of the modules around it.
    """
    return all(
        pattern is None or any(fnmatchcase(name, pattern) for name in names)
        for pattern, names in (
            (criteria.node, [node]),
            (criteria.op, ops),
            (criteria.module, modules),
        )
    )
