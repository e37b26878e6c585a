"""Models that a SOURCE argument names: a .pt2 file or a Python function."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from etdev.cli.options import given
from etdev.cli.progress import Display
from etdev.cli.source_names import FORMS, check_source, no_function
from etdev.edge.source import load_pt2, methods_of
from etdev.errors import SourceError, first_line
from etdev.runtime.inputs import load_inputs
from etdev.schema.method import Method

__all__ = ["function", "load_inputs", "methods", "returned"]

_OWN = str(Path(__file__).parents[1]) + os.sep
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
# What may stand in place of a function, and what a function would return of it.
_RESULTS = {
    type: ("a class", "{}().eval(), (example inputs)"),
    nn.Module: ("a module", "{}, (example inputs)"),
    ExportedProgram: ("an ExportedProgram", "{}"),
}


def methods(text: str, say: Display) -> dict[str, Method]:
    """Load the model that a SOURCE argument names, as a stage of the command."""
    with say.watch.stage("model", text):
        return load(text)


def load(text: str) -> dict[str, Method]:
    """Load the model that a SOURCE argument names.

    Raises:
        SourceError: It can't be found, raises, or returns something else than the help says.
    """
    if text.endswith(".pt2"):
        return methods_of(load_pt2(Path(text), bool(given("trust"))))
    value = returned(text)
    if isinstance(value, tuple):
        value = {"forward": value}
    if isinstance(value, (Mapping, ExportedProgram)):
        return methods_of(value)
    bare = isinstance(value, nn.Module)
    what = "a module without example inputs" if bare else type(value).__name__
    raise SourceError(text, f"returned {what}", "return (module, example inputs)")


def returned(text: str) -> Any:
    """Return the value that the function of a SOURCE returns."""
    return _call(text, function(text))


def function(text: str) -> Callable[..., Any]:
    """Return the function that a SOURCE names."""
    check_source(text)
    place, _, name = text.rpartition(":")
    value: Any = getattr(module := _module(text, place), name, None)
    for kind, (noun, result) in _RESULTS.items():
        if isinstance(value, kind):
            cure = f"write def model(): return {result.format(name)}"
            raise SourceError(text, f"{name} is {noun}, not a function", cure)
    if callable(value):
        return value  # type: ignore[no-any-return]
    own = (n for n, v in vars(module).items() if isfunction(v) and v.__module__ == module.__name__)
    raise no_function(text, name, [n for n in own if not n.startswith("_")])


def _module(text: str, place: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _from_file(Path(place))
        # `python -m` puts the working directory on sys.path; an installed script doesn't.
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(place)
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        # A missing module may also be one that the user's code imports.
        if missing and f"{place}.".startswith(f"{missing}.") and not _where(error):
            raise SourceError(text, f"no module named {missing!r}", FORMS) from error
        raise _raised(text, "importing it", error) from error


def _from_file(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # As when Python runs the file: it can import its neighbours, and its classes are found by name.
    sys.path.insert(0, str(file.parent.resolve()))
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        # A module whose import failed must not be found by name.
        del sys.modules[file.stem]
        raise
    return module


def _call(text: str, function: Callable[[], Any]) -> Any:
    # A model with random weights is then the same in `lower` and in `run --check`.
    torch.manual_seed(0)
    try:
        return function()
    except BaseException as error:
        raise _raised(text, "calling it", error) from error


def _raised(text: str, doing: str, error: BaseException) -> SourceError:
    if isinstance(error, KeyboardInterrupt):
        raise error
    what = f"{doing} raised {first_line(error)}{_where(error)}"
    return SourceError(text, what, f"fix the {'function' if doing == 'calling it' else 'file'}")


def _where(error: BaseException) -> str:
    """Return the innermost line of the user's code, which may have called torch."""
    lines = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", _OWN, *_INSTALLED))
    ]
    return f" at {Path(lines[-1].filename).name}:{lines[-1].lineno}" if lines else ""
