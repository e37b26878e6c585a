"""Completion of words on the command line, without torch: models, and names of plugins."""

from __future__ import annotations

import glob
from pathlib import Path

from click.shell_completion import CompletionItem

from etdev.cli.source_names import functions


def source_names(text: str) -> list[CompletionItem]:
    """Return the folders, .pt2 files and functions of .py files that begin with a text."""
    found = []
    for name in sorted(glob.glob(f"{glob.escape(text.partition(':')[0])}*")):
        path = Path(name)
        if path.is_dir() or path.suffix == ".pt2":
            found.append(f"{name}/" if path.is_dir() else name)
        elif path.suffix == ".py":
            found += [f"{name}:{function}" for function in functions(path)]
    return [CompletionItem(each) for each in found if each.startswith(text)]


def plugin_names(text: str) -> list[CompletionItem]:
    """Return the names of installed plugins that complete the last of several names."""
    from etdev.registry.registry import load
    from etdev.registry.selection import names_of

    first, comma, last = text.rpartition(",")
    known = (name for name in names_of(load()) if name.startswith(last))
    return [CompletionItem(f"{first}{comma}{name}") for name in known]
