"""Attributes that calls of a module assign to, which torch.export forgets or takes for a write.

Exported programs keep writes in place to buffers and parameters. A value that is assigned to a
buffer is copied into it, whatever its dtype and even if the old tensor is still in use. An
assignment to anything else, such as a counter in Python, is lost.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram
from torch.multiprocessing.reductions import StorageWeakRef

from etdev.edge.random_state import untouched_random_state
from etdev.edge.reference import called, duplicate, written
from etdev.edge.source import Method
from etdev.errors import EtdevWarning, SourceError
from etdev.schema.quirk import Quirk, Stage
from etdev.upstream.fake_tensors import FakeTensor, FunctionalTensor, is_traceable_wrapper_subclass
from etdev.upstream.trees import pytree

_CALLS = 3
_PLAIN = (int, float, complex, str, bytes)
# Objects within objects that are looked into; what a trainer or a tokenizer holds is not state.
_DEPTH = 4


@contextmanager
def watched_attributes(module: torch.nn.Module) -> Iterator[set[str]]:
    """Collect the names of what calls of a module assign to, such as `self.cell.hidden`."""
    assigned: set[str] = set()
    before: dict[str, Any] = {}
    places: dict[str, int] = {}

    def look(module: torch.nn.Module, _: Any) -> None:
        before.update(_attributes(module))
        places.update(_places(before))

    def compare(module: torch.nn.Module, *_: Any) -> None:
        after = _attributes(module)
        moved = _places(after).items()
        assigned.update(_changed(before, after))
        # What is assigned to the `data` of a tensor leaves no other trace.
        assigned.update(name for name, place in moved if places.get(name, place) != place)

    slots = {slot.path: slot for slot in _slots(module)}
    hooks = [module.register_forward_pre_hook(look), module.register_forward_hook(compare)]
    try:
        yield assigned
    finally:
        for hook in hooks:
            hook.remove()
        _put_back(module, slots)


def _put_back(module: torch.nn.Module, slots: Mapping[str, _Slot]) -> None:
    """Restore the values in objects of a module that torch.export replaced by traced values."""
    for slot in list(_slots(module)):
        before = slots.get(slot.path)
        if not _is_traced(slot.value) or isinstance(slot.owner, tuple):
            continue
        if before is not None:
            slot.owner[slot.key] = before.value
        elif isinstance(slot.owner, dict):
            del slot.owner[slot.key]


def check_assigned(
    method: str, module: torch.nn.Module, program: ExportedProgram, assigned: set[str]
) -> None:
    """Compare several calls of a module that assigns to its attributes with its program.

    Args:
        method: The method's name.
        module: The module; copies of it are called.
        program: What torch.export made of it.
        assigned: What its calls assign to.

    Raises:
        SourceError: A call of the program computes something else.
    """
    cure = "keep what changes in buffers, and write to them in place, as self.state.copy_(new) does"
    try:
        alike, counters = _compared(module, program)
    except Exception:
        # Such as modules that can't be copied, or whose example inputs have no values.
        held = _attributes(module)
        alike, counters = not any(_is_traced(held.get(name)) for name in assigned), assigned
    if not alike:
        names = ", ".join(sorted(assigned))
        raise SourceError(method, f"its calls assign to {names}, and torch.export forgets it", cure)
    if counters:
        names = ", ".join(sorted(counters))
        warnings.warn(
            f"{method}: its calls assign to {names}, which stays as it is now; {cure}",
            EtdevWarning,
            stacklevel=2,
        )


def _compared(module: torch.nn.Module, program: ExportedProgram) -> tuple[bool, set[str]]:
    """Return True if calls of a module and its program agree, and the numbers that they change."""
    state = dict.fromkeys(written(program))
    eager, exported = duplicate(module, state), duplicate(program.module(), state)
    leaves, structure = pytree.tree_flatten(program.example_inputs)
    numbers: dict[str, Any] = {}
    changed: set[str] = set()
    for call in range(_CALLS):
        inputs = [_varied(leaf, call) for leaf in leaves]
        with untouched_random_state():
            expected = called(eager, inputs, structure)
        try:
            with untouched_random_state():
                torch.testing.assert_close(
                    called(exported, inputs, structure),
                    expected,
                    equal_nan=True,
                    check_stride=False,
                )
        except (AssertionError, RuntimeError):
            return False, set()
        after = {name: v for name, v in _attributes(eager).items() if isinstance(v, _PLAIN)}
        changed = _changed(numbers, after)
        numbers = after
    return True, changed


def _is_traced(value: Any) -> bool:
    """Return True if torch.export made a value for tracing, and left it in an object."""
    return isinstance(value, (FakeTensor, FunctionalTensor))


def _varied(value: Any, call: int) -> Any:
    """Return another value for each call, so that old and new state differ."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value * (1 - call / 8)
    return value


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Return the names of values that were replaced, added or removed."""
    missing = object()
    return {
        name
        for name in before.keys() | after.keys()
        if not _same(before.get(name, missing), after.get(name, missing))
    }


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, _PLAIN) and one == other)


def _places(held: Mapping[str, Any]) -> dict[str, int]:
    """Return the addresses of tensors, by name."""
    return {
        name: StorageWeakRef(value.untyped_storage()).cdata  # type: ignore[no-untyped-call]
        for name, value in held.items()
        if isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not is_traceable_wrapper_subclass(value)
    }


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Return the tensors, numbers and other single values in a module, by name."""
    return {slot.path: slot.value for slot in _slots(module)}


@frozen
class _Slot:
    """A place in a module, or in an object that it holds, that has a single value."""

    path: str
    owner: Any
    key: Any
    value: Any


def _slots(module: torch.nn.Module) -> Iterator[_Slot]:
    seen: set[int] = set()
    for path, each in module.named_modules():
        prefix = f"self.{path}" if path else "self"
        for name, value in vars(each).items():
            if name in ("_buffers", "_parameters"):
                for key, tensor in value.items():
                    yield _Slot(f"{prefix}.{key}", value, key, tensor)
            elif name != "_modules":
                slot = _Slot(f"{prefix}.{name}", vars(each), name, value)
                yield from _single(slot, seen, _DEPTH)


def _single(slot: _Slot, seen: set[int], depth: int) -> Iterator[_Slot]:
    """Yield the single values in a place."""
    path, value = slot.path, slot.value
    if isinstance(value, Mapping):
        parts = [_Slot(f"{path}[{key!r}]", value, key, part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [_Slot(f"{path}[{i}]", value, i, part) for i, part in enumerate(value)]
    elif _is_single(value):
        yield slot
        return
    else:
        parts = [_Slot(f"{path}.{key}", vars(value), key, v) for key, v in vars(value).items()]
    if depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    for part in parts:
        yield from _single(part, seen, depth - 1)


def _is_single(value: Any) -> bool:
    """Return True if a value has no parts that a call might assign to."""
    known = (torch.nn.Module, torch.Tensor, type, *_PLAIN)
    return isinstance(value, known) or callable(value) or not hasattr(value, "__dict__")


def assigning(method: Method) -> list[Method]:
    """Return the method if it is a module, whose calls may assign to attributes."""
    return [method] if isinstance(method.model, torch.nn.Module) else []


@contextmanager
def watched(found: Sequence[Method]) -> Iterator[Callable[[ExportedProgram], None]]:
    """Watch what the calls of modules assign to while they are exported, and put it back."""
    (method,) = found
    model: Any = method.model
    with watched_attributes(model) as assigned:

        def check(program: ExportedProgram) -> None:
            if assigned:
                check_assigned(method.name, model, program, assigned)

        yield check


FORGOTTEN_ATTRIBUTES = Quirk(
    name="forgotten-attributes",
    stage=Stage.EXPORT,
    summary="torch.export forgets what a call assigns to attributes and to the data of a buffer, "
    "and leaves traced values in objects that a module holds.",
    upstream="not reported; torch/export/_trace.py, _export_to_torch_ir and _non_strict_export",
    affects="torch<2.15",
    find=assigning,
    during=watched,
)
QUIRKS = (FORGOTTEN_ATTRIBUTES,)
