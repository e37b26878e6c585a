"""State outside of buffers, which torch.export forgets: two calls with the same inputs differ.

Exported programs keep writes in place to buffers and parameters. A value that is assigned to a
buffer is copied into it, whatever its dtype and even if the old tensor is still in use. Any other
state, such as a counter in Python, stays as it was during the export.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram
from torch.func import functional_call
from torch.multiprocessing.reductions import StorageWeakRef

from etdev.edge.reference import called, duplicates, torch_random_state, untouched_random_state
from etdev.edge.source import Method
from etdev.errors import EtdevWarning, SourceError
from etdev.schema.quirk import Quirk, Stage
from etdev.upstream.fake_tensors import FakeTensor, FunctionalTensor, is_traceable_wrapper_subclass
from etdev.upstream.trees import pytree

_CURE = (
    "keep what changes in registered buffers, and write to them in place, as "
    "self.state.copy_(new) does"
)
_ELSEWHERE = "Python, such as a global or an iterator, or reads a clock or random numbers of Python"
_PLAIN = (int, float, complex, str, bytes)
_CALLS = 3
# Objects within objects that are looked into; what a trainer or a tokenizer holds is not state.
_DEPTH = 4


@frozen
class _Place:
    """A place in a module, or in an object that it holds, with its value at one time."""

    owner: Any
    key: Any
    value: Any
    identity: Any


def _places(module: torch.nn.Module) -> dict[str, _Place]:
    """Return the places of tensors, numbers and other single values, such as `self.cell.hidden`."""
    places: dict[str, _Place] = {}
    seen: set[int] = set()

    def look(path: str, owner: Any, key: Any, value: Any, depth: int = _DEPTH) -> None:
        if isinstance(value, Mapping):
            parts = [(f"{path}[{name!r}]", name, part) for name, part in value.items()]
        elif isinstance(value, (list, tuple)):
            parts = [(f"{path}[{index}]", index, part) for index, part in enumerate(value)]
        elif _is_single(value):
            places[path] = _Place(owner, key, value, _identity(value))
            return
        else:
            value = vars(value)
            parts = [(f"{path}.{name}", name, part) for name, part in value.items()]
        if depth and id(value) not in seen:
            seen.add(id(value))
            for name, part_key, part in parts:
                look(name, value, part_key, part, depth - 1)

    for name, each in module.named_modules():
        own = vars(each)
        for key, value in own.items():
            if key not in ("_buffers", "_parameters", "_modules"):
                look(f"self.{name}.{key}" if name else f"self.{key}", own, key, value)
    return places


def _is_single(value: Any) -> bool:
    """Return True if a value has no parts that a call might assign to."""
    known = (torch.nn.Module, torch.Tensor, type, *_PLAIN)
    return isinstance(value, known) or callable(value) or not hasattr(value, "__dict__")


def _identity(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return type(value), value
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    if not strided or is_traceable_wrapper_subclass(value):
        return id(value)
    # What is assigned to the `data` of a tensor leaves no other trace.
    return id(value), StorageWeakRef(value.untyped_storage()).cdata  # type: ignore[no-untyped-call]


def _changed(before: Mapping[str, _Place], after: Mapping[str, _Place]) -> set[str]:
    """Return the names of values that were replaced, added or removed."""
    both = before.keys() & after.keys()
    same = {name for name in both if before[name].identity == after[name].identity}
    return (before.keys() | after.keys()) - same


@contextmanager
def repeated(found: Sequence[Method]) -> Iterator[Callable[[ExportedProgram], None]]:
    """Call a module twice before its export, and take traced values out of it afterwards.

    Yields:
        A function that compares the module with its program, if a call assigns to something.

    Raises:
        SourceError: The two calls differ.
    """
    (method,) = found
    model: Any = method.model
    module = model
    # A module that can't be copied, such as one that holds a generator, is called itself.
    with suppress(Exception):
        (module,) = duplicates([model], [{}])
    with untouched_random_state(), _deterministic():
        assigned, counters = _called_twice(method, module)
    given = _places(model)

    def check(program: ExportedProgram) -> None:
        if assigned and not _agree(module, program):
            what = f"its calls assign to {', '.join(sorted(assigned))}, and torch.export forgets it"
            raise SourceError(method.name, what, _CURE)
        if counters:
            what = f"its calls assign to {', '.join(sorted(counters))}, which stays as it is now"
            warnings.warn(f"{method.name}: {what}; {_CURE}", EtdevWarning, stacklevel=2)

    try:
        yield check
    finally:
        for path, place in _places(model).items():
            traced = isinstance(place.value, (FakeTensor, FunctionalTensor))
            if not traced or isinstance(place.owner, tuple):
                continue
            if path in given:
                place.owner[place.key] = given[path].value
            elif isinstance(place.owner, dict):
                del place.owner[place.key]


@contextmanager
def _deterministic() -> Iterator[None]:
    """Have kernels compute the same bits each time, on a CPU with several threads, too."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_deterministic_debug_mode(before)


def _called_twice(method: Method, module: torch.nn.Module) -> tuple[set[str], set[str]]:
    """Call a module twice with the same inputs, parameters, buffers and random state of torch.

    Returns:
        The names of what a call assigns to, and of the numbers among them that each call changes.

    Raises:
        SourceError: The calls differ.
    """
    leaves, structure = pytree.tree_flatten((method.inputs, method.kwargs))
    before, copies = _places(module), dict[int, torch.Tensor]()
    try:
        first, replaced = _results(module, leaves, structure, copies)
        torch.testing.assert_close(first, first, equal_nan=True)
    except Exception:
        # It fails in torch.export, too, or has no values to compute with.
        return set(), set()
    once = _places(module)
    assigned = _changed(before, once)
    try:
        second, _ = _results(module, leaves, structure, copies)
        torch.testing.assert_close(second, first, rtol=0, atol=0, equal_nan=True)
    except Exception as error:
        what = "two calls with the same inputs and buffers differ, since it keeps state in "
        what += f"{', '.join(sorted(assigned)) or _ELSEWHERE}, which torch.export forgets"
        raise SourceError(method.name, what, _CURE) from error
    twice = _places(module)
    numbers = {name for name, place in twice.items() if isinstance(place.value, _PLAIN)}
    return assigned | replaced, _changed(once, twice) & numbers


def _results(
    module: torch.nn.Module,
    leaves: Sequence[Any],
    structure: pytree.TreeSpec,
    copies: dict[int, torch.Tensor],
) -> tuple[dict[str, Any], set[str]]:
    """Call a module with copies of its parameters and buffers.

    `copies` are those of an earlier call, by the identity of the tensor; the new ones are added.

    Returns:
        Its results and the new values of buffers, and the names of buffers that were assigned to.
    """
    named = {
        f"{prefix}.{name}" if prefix else name: value
        for prefix, each in module.named_modules()
        for part in (each.named_parameters, each.named_buffers)
        for name, value in part(recurse=False, remove_duplicate=False)
        # A quantised weight made of several tensors is written by no call.
        if not is_traceable_wrapper_subclass(value)
    }
    # Comparing a copy is quicker than making another one. Tied tensors stay tied.
    for known, value in {id(value): value for value in named.values()}.items():
        if known not in copies or not _equal(copies[known], value):
            copies[known] = value.detach().clone()
    given = {name: copies[id(value)] for name, value in named.items()}
    identities, state = {name: _identity(value) for name, value in given.items()}, dict(given)

    def call(*arguments: Any, **keywords: Any) -> Any:
        return functional_call(module, state, arguments, keywords, tie_weights=False)

    with torch_random_state():
        values = pytree.tree_leaves(called(call, leaves, structure))
    results = [value for value in values if isinstance(value, (torch.Tensor, int, float, complex))]
    replaced = {f"self.{name}" for name in given if _identity(state[name]) != identities[name]}
    buffers = [name for name, value in named.items() if not isinstance(value, torch.nn.Parameter)]
    return {"": results, **{name: state[name] for name in buffers}}, replaced


def _equal(copy: torch.Tensor, value: torch.Tensor) -> bool:
    """Return True if a copy is known to have the values of a tensor."""
    try:
        return torch.equal(copy, value)
    except (RuntimeError, NotImplementedError):
        # Tensors without values, or in a layout that torch doesn't compare.
        return False


def _agree(module: torch.nn.Module, program: ExportedProgram) -> bool:
    """Return True if calls of a module and its program agree, on several inputs."""
    exported, (leaves, structure) = program.module(), pytree.tree_flatten(program.example_inputs)
    for call in range(_CALLS):
        # With other values for each call, what is kept from the call before differs.
        floats = [isinstance(v, torch.Tensor) and v.is_floating_point() for v in leaves]
        pairs = zip(leaves, floats, strict=True)
        inputs = [value * (1 - call / 8) if varies else value for value, varies in pairs]
        try:
            expected, _ = _results(module, inputs, structure, {})
        except Exception:  # It may check its inputs.
            continue
        try:
            given, _ = _results(exported, inputs, structure, {})
            both = expected.keys() & given.keys()
            pair = ({name: values[name] for name in both} for values in (given, expected))
            torch.testing.assert_close(*pair, equal_nan=True)
        except Exception:
            return False
    return True


FORGOTTEN_STATE = Quirk(
    name="forgotten-state",
    stage=Stage.EXPORT,
    summary="torch.export forgets state outside of buffers, such as attributes and globals, and "
    "leaves traced values in objects that a module holds.",
    upstream="not reported; torch/export/_trace.py, _export_to_torch_ir and _non_strict_export",
    affects="torch<2.16",
    find=lambda method: (
        [method] if isinstance(method.model, torch.nn.Module) and method.inputs is not None else []
    ),
    during=repeated,
)
QUIRKS = (FORGOTTEN_STATE,)
