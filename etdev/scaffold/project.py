"""The files of a new distribution, rendered from templates and written all or none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from etdev.errors import EtdevError, first_line
from etdev.scaffold.names import Names

if TYPE_CHECKING:
    from importlib.abc import Traversable

# Folders of templates for each kind of distribution; files of a later folder win.
KINDS = {"plugin": ("common", "plugin"), "backend": ("common", "backend")}
# Linters would check templates that end in .py.
_ENDING = ".txt"


def write(kind: str, names: Names, parent: Path) -> Path:
    """Write the distribution of a new plugin, or nothing of it, and return its folder.

    Args:
        kind: One of `KINDS`.
        names: Its names.
        parent: The parent of its folder; made if it is missing.
    """
    folder = parent / names.distribution
    if folder.exists() or folder.is_symlink():
        raise EtdevError(str(folder), "is there already", "choose another name, or --into DIR")
    absent = [above for above in (parent, *parent.parents) if not above.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".etdev-new-", dir=parent) as place:
            draft = Path(place) / names.distribution
            for path, text in rendered(kind, names).items():
                (draft / path).parent.mkdir(parents=True, exist_ok=True)
                (draft / path).write_text(text, encoding="utf-8", newline="\n")
            draft.rename(folder)
    except OSError as error:
        for above in absent:
            with suppress(OSError):
                above.rmdir()
        cure = "choose a folder that can be written with --into DIR"
        raise EtdevError(str(folder), f"can't be written: {first_line(error)}", cure) from error
    return folder


def rendered(kind: str, names: Names) -> dict[str, str]:
    """Return the text of each file of a distribution, by its path."""
    keys = ("plugin", "distribution", "package", "stem", "backend")
    values = {key: getattr(names, key) for key in keys}
    texts: dict[str, str] = {}
    for layer in KINDS[kind]:
        for path, text in _templates(files(__package__) / "templates" / layer):
            own = Template(path.removesuffix(_ENDING)).substitute(values)
            texts[own] = Template(text).substitute(values)
    return dict(sorted(texts.items()))


def _templates(folder: Traversable, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each template of a folder."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{above}{entry.name}"
        if entry.is_dir():
            yield from _templates(entry, f"{path}/")
        elif path.endswith(_ENDING):
            yield path, entry.read_text(encoding="utf-8")
