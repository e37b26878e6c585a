"""Checks of `.pt2` files for code that torch.export.load would run.

torch's loader unpickles tensors of subclasses and opaque constants, and example inputs that a safe
unpickler refuses; it loads compiled libraries, evaluates the expressions of
dynamic shapes as Python, and writes names of nodes into code that it then runs.
"""

from __future__ import annotations

import ast
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import sympy
import torch
from attrs import define
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader

from etdev.errors import SourceError, first_line
from etdev.upstream.exported import size_functions

_PAYLOADS = ("data/weights/", "data/constants/")
_LIBRARIES = "data/aotinductor/"
_OPAQUE = "opaque_obj"
_TRUST = (
    "if you trust who made it, give --trust, or what torch.export.load makes of it; "
    "else export the model anew"
)
# The syntax of the expressions that torch writes.
_EXPRESSION = (
    *(ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.Tuple),
    *(ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def load_pt2(path: Path, trust: bool = False) -> ExportedProgram:
    """Load a .pt2 file, as `torch.export.save` writes it.

    Args:
        path: The file.
        trust: Let code in it run.

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
    """Yield the code of a file that torch's loader would run; nothing for an unreadable file.

    Args:
        path: The file.
    """
    for archive in _archives(path):
        yield from _Scan(archive).reasons()


def _archives(path: Path) -> Iterator[Mapping[str, Callable[[], bytes]]]:
    """Yield the members of a file as torch's loader sees them, also in the format of torch 2.7."""
    try:
        with PT2ArchiveReader(str(path)) as reader:
            names = reader.get_file_names()
            yield {name: partial(reader.read_bytes, name) for name in names}
    except (RuntimeError, OSError):
        pass
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist() if "version" in file.namelist() else []
            yield {name: partial(file.read, name) for name in names}
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError):
        pass


@define(eq=False)
class _Scan:
    """The members of one archive: functions that read them, by name."""

    members: Mapping[str, Callable[[], bytes]]

    def reasons(self) -> Iterator[str]:
        """Yield the parts that would run."""
        for name, read in self.members.items():
            if name.startswith(_LIBRARIES):
                yield f"the native library {name}"
            elif name.rpartition("/")[2].startswith(_OPAQUE) or (
                name.endswith(".pt") and not _is_data(read())
            ):
                yield f"the pickle {name}"
            elif name.endswith(".json"):
                yield from self._in_json(name, _plain(read()))

    def _in_json(self, name: str, data: Any) -> Iterator[str]:
        if name.startswith(_PAYLOADS):
            folder = name.rpartition("/")[0]
            yield from self._payloads(folder, data)
            return
        for key, value in _walk(data):
            if key == "expr_str" and not _is_expression(value):
                yield f"the expression {_short(value)} in {name}"
            elif key in ("name", "as_name", "forward_arg_names") and not _are_names(value):
                yield f"the name {_short(value)} in {name}"
            elif key == "in_spec" and not _are_names(_keywords(value)):
                yield f"a keyword argument in {name}"

    def _payloads(self, folder: str, data: Any) -> Iterator[str]:
        """Yield the weights or constants that are unsafe pickles."""
        config = data.get("config") if isinstance(data, dict) else None
        for payload in config.values() if isinstance(config, dict) else ():
            if not isinstance(payload, dict) or not payload.get("use_pickle"):
                continue
            name = f"{folder}/{payload.get('path_name')}"
            # TorchScript's objects are of classes that this process has registered.
            torchscript = str(payload.get("path_name")).startswith("custom_obj")
            if name in self.members and not torchscript and not _is_data(self.members[name]()):
                yield f"the pickle {name}"


def _is_data(content: bytes) -> bool:
    """Return True if torch's safe unpickler takes a pickle, as of tensors and containers."""
    if not content:
        return True
    try:
        torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception:
        return False
    return True


def _plain(content: bytes) -> Any:
    """Return JSON as plain data; None for other bytes, which torch's loader refuses, too."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
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


def _are_names(value: Any) -> bool:
    """Return True if generated code can contain names without running anything else."""
    names = value if isinstance(value, list) else [value]
    return all(
        not isinstance(name, str)
        or not name
        # A submodule's name may have dots.
        or all(part.isidentifier() or part.isdigit() for part in name.split("."))
        for name in names
    )


def _keywords(spec: Any) -> list[Any]:
    """Return the names of keyword arguments in a serialized structure of inputs."""
    try:
        _, inputs = json.loads(spec)
        _, keywords = inputs["children_spec"]
        names = json.loads(keywords["context"])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return []
    return names if isinstance(names, list) else []


def _is_expression(text: Any) -> bool:
    """Return True if sympy makes an expression of a text without running anything else."""
    if not isinstance(text, str):
        return True
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(node, _EXPRESSION) and _is_harmless(node) for node in ast.walk(tree))


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        kind = node.func.id if isinstance(node.func, ast.Name) else ""
        known = getattr(size_functions, kind, None) or getattr(sympy, kind, None)
        return isinstance(known, type) and issubclass(known, sympy.Basic)
    # sympy evaluates text, too.
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.isidentifier()
    return not isinstance(node, ast.Name) or not node.id.startswith("__")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
