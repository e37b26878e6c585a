"""The variables in Python that calls of a module may change.

They are its attributes, and the globals, closures and defaults of the functions that it names.
"""

from __future__ import annotations

import dis
import inspect
import logging
import pickle
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain
from types import CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import torch

from etdev.upstream.fake_tensors import write_count

# Values within values that are looked into; what a trainer or a tokenizer holds is not state.
_DEPTH = 4
_PLAIN = (int, float, complex, str, bytes)
# Values without parts that a call might assign to.
_WHOLE = (torch.Tensor, ModuleType, random.Random, logging.Logger, *_PLAIN)
# Packages whose functions keep caches and logs, on which no result depends.
_TRUSTED = {"torch", "etdev", *sys.stdlib_module_names} - {"__main__"}
_GLOBAL = ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME", "STORE_NAME", "DELETE_GLOBAL")
_CLOCKS = ("time", "datetime")
_REGISTERED = ("_buffers", "_parameters", "_modules")


class Variable(NamedTuple):
    """A variable whose value has no parts that a call might assign to, with its value.

    Args:
        name: Such as `self.calls`; variables of several functions may have one name.
        owner: The dict, the list, the cell of a closure or the object that holds it.
        key: Its place there.
        value: Its value.
    """

    name: str
    owner: Any
    key: Any
    value: object


Identities = dict[str, list[object]]


def variables_of(module: torch.nn.Module) -> list[Variable]:
    """Return the variables that calls of a module may change, those in objects included."""
    roots = []
    for prefix, each in module.named_modules():
        own, name = vars(each), f"self.{prefix}" if prefix else "self"
        roots += [Variable(f"{name}.{k}", own, k, own[k]) for k in own if k not in _REGISTERED]
        for kind in filter(_is_own, type(each).__mro__):
            roots += [Variable(kind.__name__, each, kind, kind), *_methods(kind)]
    for library, draw in (("Python", random.random), ("NumPy", np.random.rand)):
        generator = getattr(draw, "__self__", None)
        roots.append(Variable(f"random numbers of {library}", draw, library, generator))
    seen = set[int]()
    return list(chain.from_iterable(_leaves(root, seen) for root in roots))


def identities(module: torch.nn.Module) -> Identities:
    """Return, by the names of variables, what stays equal while their values stay as they are."""
    known: Identities = {}
    for variable in variables_of(module):
        known.setdefault(variable.name, []).append(_identity(variable.value))
    return known


def _leaves(variable: Variable, seen: set[int], depth: int = _DEPTH) -> Iterator[Variable]:
    """Yield the variables that a value consists of, each object only once."""
    parts = _parts(variable.name, variable.value)
    if parts is None:
        yield variable
    elif depth and id(variable.value) not in seen:
        seen.add(id(variable.value))
        for part in parts:
            yield from _leaves(part, seen, depth - 1)


def _methods(kind: type) -> Iterator[Variable]:
    """Yield `forward` of a class, if it has its own, and the methods that it names."""
    forward = vars(kind).get("forward")
    if isinstance(forward, FunctionType):
        code = getattr(inspect.unwrap(forward), "__code__", forward.__code__)
        for name in ("forward", *_names(code)):
            method = inspect.getattr_static(kind, name, None)
            if isinstance(method, FunctionType):
                yield Variable(name, kind, name, method)


def _parts(name: str, value: object) -> Iterable[Variable] | None:
    """Return the variables that a value consists of; None if it has no parts."""
    if isinstance(value, FunctionType):
        return _named(value) if _is_own(value) else ()
    if isinstance(value, MethodType):
        bound = {"func": value.__func__, "self": value.__self__}
        return [Variable(name, value, key, part) for key, part in bound.items()]
    is_module = isinstance(value, torch.nn.Module)
    if isinstance(value, _WHOLE) or (callable(value) and not is_module and not _is_own(value)):
        return None
    if isinstance(value, dict):
        # A dict of transformers imports all its models if it is asked for items.
        items = dict.items(value)
        return [Variable(f"{name}[{key!r}]", value, key, part) for key, part in items]
    if isinstance(value, (list, tuple)):
        return [Variable(f"{name}[{key}]", value, key, part) for key, part in enumerate(value)]
    held: Mapping[str, object] = getattr(value, "__dict__", {})
    is_class = isinstance(value, type)
    kept = [key for key, part in held.items() if not is_class or _is_data(key, part)]
    # An object without attributes is compared as a whole, such as a deque.
    parts = [Variable(f"{name}.{key}", held, key, held[key]) for key in kept]
    return parts if parts or is_class else None


def _named(function: FunctionType) -> Iterator[Variable]:
    """Yield the globals that a function names, its closure and its defaults."""
    code, own = function.__code__, function.__globals__
    names = {*_names(code)}
    for key in sorted(own.keys() & _globals(code)):
        yield Variable(f"{function.__module__}.{key}", own, key, own[key])
        if isinstance(module := own[key], ModuleType) and _is_own(module):
            for name in sorted(vars(module).keys() & names):
                yield Variable(f"{module.__name__}.{name}", module, name, vars(module)[name])
    for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        # It may have no value yet.
        with suppress(ValueError):
            yield Variable(f"{code.co_name}.{key}", cell, "cell_contents", cell.cell_contents)
    arguments = reversed(code.co_varnames[: code.co_argcount])
    defaults = zip(arguments, reversed(function.__defaults__ or ()), strict=False)
    for key, value in (*defaults, *(function.__kwdefaults__ or {}).items()):
        yield Variable(f"{code.co_name}.{key}", function, key, value)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names in a function and in those that are written inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _globals(code: CodeType) -> set[str]:
    """Return the globals that a function and those inside of it read or write."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname in _GLOBAL}
    return found.union(*(_globals(c) for c in code.co_consts if isinstance(c, CodeType)))


def _is_own(value: object) -> bool:
    """Return True if a module or function, or the class of a value, is the user's own."""
    if isinstance(value, ModuleType):
        name = value.__name__
    else:
        kind = value if isinstance(value, (type, FunctionType)) else type(value)
        name = str(kind.__module__)
    return name.partition(".")[0] not in _TRUSTED


def _is_data(name: str, value: object) -> bool:
    """Return True if an attribute of a class is neither a method nor Python's own."""
    return not (name.startswith("__") or callable(value) or inspect.isdatadescriptor(value))


def _identity(value: object) -> object:
    """Return what stays equal while a value stays as it is."""
    if isinstance(value, ref):
        # torch's recurrent layers make references to their weights anew in each functional call.
        return ref
    if isinstance(value, ModuleType) or callable(value):
        names = (getattr(value, "__name__", ""), getattr(value, "__module__", ""))
        # A clock always changes.
        return object() if any(name in names for name in _CLOCKS) else id(value)
    if isinstance(value, torch.Tensor):
        # Some have no values, and weights may be large.
        with suppress(Exception):
            if not isinstance(value, torch.nn.Parameter):
                content = value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
                return value.dtype, value.shape, content
        return id(value), write_count(value)
    if isinstance(value, GeneratorType):
        local = getattr(value.gi_frame, "f_locals", {})
        return id(value), [_identity(each) for each in local.values()]
    # Such as a lock.
    with suppress(Exception):
        return pickle.dumps(value)
    return id(value)
