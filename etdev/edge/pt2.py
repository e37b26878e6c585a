"""Checks of `.pt2` files for code that torch.export.load would run.

torch's loader unpickles tensors of subclasses and opaque constants, and example inputs that a safe
unpickler refuses; it loads compiled libraries, evaluates the expressions of
dynamic shapes as Python, and writes names of nodes into code that it then runs.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader

from etdev.errors import SourceError, first_line
from etdev.upstream.exported import size_functions

# Functions that read the members of an archive, by name.
_Members = Mapping[str, Callable[[], bytes]]
_PAYLOADS = ("data/weights/", "data/constants/")
_LIBRARIES = "data/aotinductor/"
_OPAQUE = "opaque_obj"
_TRUST = (
    "if you trust who made it, give --trust, or what torch.export.load makes of it; "
    "else export the model anew"
)
# Generated code can contain such names, with the dots of submodules, and run nothing else.
_NAMES = re.compile(r"[\w.]*")
# The arguments of a function as torch's pytrees write them: `["x", "y"]`.
_KEYS = re.compile(r'[-\w."\[\], ]*')
# Words, texts of one word, numbers and operators, but neither attributes nor calls of a result.
_EXPRESSION = re.compile(
    r"(?:[A-Za-z]\w*\b|'\w+'|\d+(?:\.\d+)?\b|(?!\) *\()[-+*/%(),=<>!&|~ ])*", re.ASCII
)
_CALLED = re.compile(r"(\w+) *\(")


def load_pt2(path: Path, trust: bool = False) -> ExportedProgram:
    """Load a .pt2 file, as `torch.export.save` writes it; with `trust` code in it may run.

    Raises:
        SourceError: It is missing, truncated, not a .pt2 file, or would run code.
    """
    if not path.is_file():
        raise SourceError(str(path), "does not exist", "give the path of a .pt2 file")
    reason = None if trust else next(code_in(path), None)
    if reason:
        raise SourceError(str(path), f"would run code when it is loaded: {reason}", _TRUST)
    try:
        return torch.export.load(path)
    except Exception as error:
        raise SourceError(
            str(path),
            f"can't be loaded as a .pt2 file ({first_line(error)})",
            "write it again with torch.export.save",
        ) from error


def code_in(path: Path) -> Iterator[str]:
    """Yield the code of a file that torch's loader would run; nothing for an unreadable file."""
    # Read as torch's loader does, which also takes the format of torch 2.7.
    with suppress(RuntimeError, OSError), PT2ArchiveReader(str(path)) as reader:
        yield from _code({n: partial(reader.read_bytes, n) for n in reader.get_file_names()})
    unreadable = (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError)
    with suppress(*unreadable), zipfile.ZipFile(path) as file:
        if "version" in file.namelist():
            yield from _code({name: partial(file.read, name) for name in file.namelist()})


def _code(members: _Members) -> Iterator[str]:
    for name, read in members.items():
        opaque = name.rpartition("/")[2].startswith(_OPAQUE)
        if name.startswith(_LIBRARIES):
            yield f"the native library {name}"
        elif opaque or (name.endswith(".pt") and not _is_data(read())):
            yield f"the pickle {name}"
        elif name.endswith(".json"):
            # The pickles among weights and constants are listed in a file beside them.
            folder = name.rpartition("/")[0] if name.startswith(_PAYLOADS) else None
            yield from _in_json(name, _plain(read()), folder, members)


def _in_json(name: str, data: Any, folder: str | None, members: _Members) -> Iterator[str]:
    for key, value in _walk(data):
        if folder and isinstance(value, dict) and value.get("use_pickle"):
            pickle = f"{folder}/{value.get('path_name')}"
            if pickle in members and not _is_data(members[pickle]()):
                yield f"the pickle {pickle}"
        elif key == "expr_str" and not _is_expression(str(value)):
            yield f"the expression {_short(value)} in {name}"
        elif key in ("name", "as_name", "forward_arg_names") and not _fits(_NAMES, value):
            yield f"the name {_short(value)} in {name}"
        elif key == "in_spec":
            keys = [inner for at, inner in _walk(_plain(value)) if at == "context"]
            if not _fits(_KEYS, keys):
                yield f"a keyword argument in {name}"


def _fits(pattern: re.Pattern[str], value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return all(pattern.fullmatch(text) for text in texts if isinstance(text, str))


def _is_data(content: bytes) -> bool:
    """Return True if torch's safe unpickler takes a pickle, as of tensors and containers."""
    if not content:
        return True
    try:
        torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception:
        return False
    return True


def _plain(content: Any) -> Any:
    """Return JSON as plain data; None for another text, which torch's loader refuses, too."""
    try:
        return json.loads(content)
    except (ValueError, TypeError, RecursionError):
        return None


def _walk(data: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of nested objects with its value."""
    work = [data]
    while work:
        item = work.pop()
        if isinstance(item, dict):
            yield from item.items()
            work += item.values()
        elif isinstance(item, list):
            work += item


def _is_expression(text: str) -> bool:
    """Return True if sympy makes an expression of a text without running anything else."""
    called = (getattr(size_functions, n, getattr(sympy, n, None)) for n in _CALLED.findall(text))
    harmless = all(isinstance(kind, type) and issubclass(kind, sympy.Basic) for kind in called)
    return harmless and bool(_EXPRESSION.fullmatch(text))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
