"""Names of models, as SOURCE arguments have them, checked before torch is imported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from etdev.errors import SourceError, close_to

FORMS = "write file.pt2, package.module:function or file.py:function"
# Suffixes of files of weights alone.
_WEIGHTS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")


def check_source(text: str) -> None:
    """Check that a SOURCE names a model in a file that exists."""
    if text.endswith(".pt2"):
        if not Path(text).is_file():
            raise SourceError(text, "does not exist", "give the path of a .pt2 file")
        return
    if Path(text).suffix in _WEIGHTS:
        cure = "write a function that makes the module, loads them and returns (module, inputs)"
        raise SourceError(text, "has weights, and no model", cure)
    place, _, name = (text, "", "") if text.endswith(".py") else text.rpartition(":")
    if not place or not (name or place.endswith(".py")):
        raise SourceError(text, "does not name a model", FORMS)
    if not place.endswith(".py"):
        return
    if not Path(place).is_file():
        raise SourceError(text, f"there is no file {place!r}", FORMS)
    code = Path(place).read_text(encoding="utf-8", errors="replace")
    known = _functions(code)
    # However else a file makes a function, it writes its name, or imports all names of another.
    if not name or (known and not re.search(rf"\b{re.escape(name)}\b|import \*", code)):
        raise no_function(text, name, known)


def functions(file: Path) -> list[str]:
    """Return the names of the public functions that a file of Python defines."""
    return _functions(file.read_text(encoding="utf-8", errors="replace"))


def _functions(code: str) -> list[str]:
    return re.findall(r"^def ([^\W_]\w*)\(", code, re.MULTILINE)


def no_function(text: str, name: str, known: Sequence[str]) -> SourceError:
    """Return the error about a SOURCE without a function of its name."""
    what = f"there is no function {name!r}" if name else "names no function"
    if not known:
        return SourceError(text, what, FORMS)
    place = text.removesuffix(f":{name}")
    only = f"write {place}:{known[0]}" if len(known) == 1 else ""
    return SourceError(
        text, what, only or close_to(name, known) or f"it has {', '.join(known[:8])}"
    )
