"""The values in Python that calls of a model may change: attributes, globals, closures, defaults.

A call is watched for the names that its functions use, so that nobody has to say where state is.
"""

from __future__ import annotations

import inspect
import pickle
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from attrs import define, field, frozen

from etdev.upstream.fake_tensors import write_count

_PLAIN = (int, float, complex, str, bytes)
# Objects within objects that are looked into; what a trainer or a tokenizer holds is not state.
_DEPTH = 4
# Packages whose functions keep caches and logs, on which no result depends.
_TRUSTED = {"torch", "etdev", *sys.stdlib_module_names} - {"__main__"}
_CLOCKS = {
    "time": {"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"},
    "datetime": {"now", "today", "utcnow"},
    "posix": {"urandom"},
}
# A path, the name and object that it starts from, and owner, key and value.
Root = tuple[str, Any, Any, Any, Any]


@frozen
class Place:
    """A place in a module, or in an object that it reaches, with its value at one time."""

    owner: Any
    key: Any
    value: Any
    identity: Any


Places = dict[tuple[str, Any], Place]


def places_of(roots: Iterable[Root]) -> Places:
    """Return the places of tensors, numbers and other single values, by path and start."""
    places: Places = {}
    seen: set[int] = set()

    def look(root: Root, depth: int = _DEPTH) -> None:
        path, start, owner, key, value = root
        parts = None if _is_single(value) else _parts(path, value)
        if parts is None:
            places[path, start] = Place(owner, key, value, _identity(value))
        elif depth and id(value) not in seen:
            seen.add(id(value))
            for name, *part in parts:
                look((name, start, *part), depth - 1)

    for root in roots:
        look(root)
    return places


def attributes(module: torch.nn.Module) -> Iterator[Root]:
    """Yield the attributes of a module and its parts, such as `self.cell.hidden`, and classes."""
    for name, each in module.named_modules():
        own = vars(each)
        for key, value in own.items():
            if key not in ("_buffers", "_parameters", "_modules"):
                yield f"self.{name}.{key}" if name else f"self.{key}", None, own, key, value
        yield from ((kind.__name__, None, None, None, kind) for kind in type(each).__mro__)
    yield "random numbers of Python", None, None, None, getattr(random.random, "__self__", None)
    yield "random numbers of NumPy", None, None, None, getattr(np.random.rand, "__self__", None)


def changed(before: Places, after: Places, copied: bool = True) -> set[tuple[str, Any]]:
    """Return the keys of values that were replaced, added or removed; and by copies if `copied`."""
    both = before.keys() & after.keys()
    same = {key for key in both if before[key].identity == after[key].identity}
    if not copied:
        same |= {key for key in both if are_equal(before[key].value, after[key].value)}
    return (before.keys() | after.keys()) - same


def are_equal(one: Any, other: Any) -> bool:
    """Return True if two tensors are known to have the same values."""
    try:
        same = one is not other and one.shape == other.shape and one.dtype == other.dtype
        # NaN is not equal to itself.
        return same and (torch.equal(one, other) or torch.allclose(one, other, 0, 0, True))
    # No tensors, or without values, or in a layout that torch doesn't compare.
    except (AttributeError, TypeError, RuntimeError, NotImplementedError):
        return False


def _is_single(value: Any) -> bool:
    """Return True if a value has no parts that a call might assign to."""
    if isinstance(value, (torch.Tensor, ModuleType, random.Random, *_PLAIN)):
        return True
    if isinstance(value, torch.nn.Module) or not callable(value):
        return False
    kind = value if isinstance(value, (type, FunctionType)) else type(value)
    return str(kind.__module__).partition(".")[0] in _TRUSTED


def _parts(path: str, value: Any) -> list[tuple[str, Any, Any, Any]] | None:
    """Return the parts of a value with paths, owners and keys; None if it has none."""
    if isinstance(value, Mapping):
        return [(f"{path}[{key!r}]", value, key, part) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"{path}[{index}]", value, index, part) for index, part in enumerate(value)]
    if isinstance(value, type):
        own = [(name, part) for name, part in vars(value).items() if _is_data(name, part)]
        return [(f"{path}.{name}", value, name, part) for name, part in own]
    held: dict[str, Any] = getattr(value, "__dict__", {})
    # Without attributes it is compared as a whole, such as a deque.
    return [(f"{path}.{name}", held, name, part) for name, part in held.items()] or None


def _is_data(name: str, value: Any) -> bool:
    """Return True if an attribute of a class is neither a method nor Python's own."""
    return not (name.startswith("__") or callable(value) or inspect.isdatadescriptor(value))


def _identity(value: Any) -> Any:
    """Return what stays equal while a value stays as it is."""
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, FrameType):
        # It runs on, or asks a clock.
        return object()
    if isinstance(value, torch.Tensor):
        return id(value), write_count(value)
    # Arrays, iterators, objects with slots.
    with suppress(Exception):
        return id(value) if callable(value) else pickle.dumps(value)
    return id(value)


@define(eq=False)
class Reach:
    """The values that the functions of a model name while it is called, and the clocks they read.

    Functions of torch and of Python's own library are left out.

    Args:
        roots: Owners, keys and values by path and object. Two calls have the same object for an
            argument, such as a default, or for a variable of an enclosing function, if it is kept.
    """

    roots: dict[tuple[str, int], tuple[Any, Any, Any]] = field(factory=dict, init=False)
    _known: set[Any] = field(factory=set, init=False)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what functions name meanwhile."""
        before = sys.getprofile()
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(before)

    def current(self) -> Iterator[Root]:
        """Yield the roots with the values that globals have now."""
        for root, (owner, key, value) in self.roots.items():
            yield root[0], root, owner, key, value if owner is None else owner.get(key)

    def _see(self, frame: FrameType, event: str, called: Any) -> None:
        module, code = str(frame.f_globals.get("__name__", "")), frame.f_code
        if event not in ("call", "c_call") or module.partition(".")[0] in _TRUSTED:
            return
        if event == "c_call":
            holder = getattr(getattr(called, "__self__", None), "__name__", "")
            if called.__name__ in _CLOCKS.get(holder, ()):
                self.roots[f"{holder}.{called.__name__}", 0] = (None, None, frame)
            return
        if code not in self._known:
            self._known.add(code)
            self._note_globals(module, frame.f_globals, {*code.co_names})
        if code.co_flags & inspect.CO_GENERATOR:
            # One that an earlier call made goes on.
            self._note(f"the generator {code.co_name}", frame)
            return
        given, values = code.co_argcount + code.co_kwonlyargcount, frame.f_locals
        for name in (*code.co_varnames[:given], *code.co_freevars):
            if name in values:
                self._note(f"{code.co_name}.{name}", values[name], name in code.co_freevars)

    def _note_globals(self, path: str, held: dict[str, Any], names: set[str]) -> None:
        for name in sorted(held.keys() & names):
            self.roots[f"{path}.{name}", 0] = (held, name, None)
            if isinstance(module := held[name], ModuleType):
                for key in sorted(vars(module).keys() & names):
                    self.roots[f"{module.__name__}.{key}", 0] = (vars(module), key, None)

    def _note(self, path: str, value: Any, is_free: bool = False) -> None:
        if isinstance(value, (torch.Tensor, *_PLAIN)):
            if is_free:
                self.roots[path, 0] = (None, None, value)
        elif not isinstance(value, torch.nn.Module):
            self.roots[path, id(value)] = (None, None, value)
            self.roots[type(value).__name__, 0] = (None, None, type(value))
