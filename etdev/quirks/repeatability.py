"""State outside of buffers, which torch.export forgets: two calls with the same inputs differ.

Exported programs keep writes in place to buffers and parameters. A value that is assigned to a
buffer is copied into it, whatever its dtype and even if the old tensor is still in use. Any other
state, such as a counter in Python, stays as it was during the export.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.func import functional_call
from torch.multiprocessing.reductions import StorageWeakRef

from etdev.edge.reference import (
    called,
    duplicates,
    torch_random_state,
    untouched_random_state,
)
from etdev.errors import EtdevWarning, SourceError
from etdev.quirks.python_state import Reach, are_equal, attributes, changed, places_of
from etdev.schema.method import Method
from etdev.schema.quirk import Check, Quirk
from etdev.schema.stages import EXPORT
from etdev.upstream.fake_tensors import FakeTensor, FunctionalTensor, is_traceable_wrapper_subclass
from etdev.upstream.trees import pytree

_CURE = (
    "keep it in a registered buffer and write to that in place, as self.state.copy_(new) does, or "
    "give it as an input"
)
_CONSTANT = "torch.export baked in a value that changes between calls: "
_CALLS = 3
# At most this many further calls, within a time, if something is known to change, and if not.
_FURTHER = {True: (100, 1.0), False: (6, 0.1)}


@contextmanager
def repeated(found: Sequence[Method]) -> Iterator[Check]:
    """Call a module twice before its export, and take traced values out of it afterwards.

    Yields:
        A function that compares the module with its program, if a call assigns to something. It
        returns a doubt if each call changes what no call so far depends on.

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
        assigned, moving = _repeat(method, module)
    given = places_of(attributes(model))

    def check(program: ExportedProgram) -> str | None:
        if assigned and not _agree(module, program):
            what = f"its calls assign to {', '.join(sorted(assigned))}, and torch.export forgets it"
            raise SourceError(method.name, what, _CURE)
        if not moving:
            return None
        warnings.warn(f"{method.name}: {_CONSTANT}{moving}; {_CURE}", EtdevWarning, 2)
        return _CONSTANT + moving

    try:
        yield check
    finally:
        for path, place in places_of(attributes(model)).items():
            if not isinstance(place.value, (FakeTensor, FunctionalTensor)):
                continue
            if path in given and isinstance(place.owner, (dict, list)):
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


def _repeat(method: Method, module: torch.nn.Module) -> tuple[set[str], str]:
    """Call a module again with the same inputs, parameters, buffers and random state of torch.

    Returns:
        The names of what a call assigns to, and of what each call changes though no call so far
        depends on it.

    Raises:
        SourceError: The calls differ.
    """
    leaves, structure = pytree.tree_flatten((method.inputs, method.kwargs))
    call = partial(_results, module, leaves, structure, {})
    reached, again, before = Reach(), Reach(), places_of(attributes(module))
    try:
        with reached.watching():
            first, replaced = call()
        torch.testing.assert_close(first, first, equal_nan=True)
    except Exception:
        # It fails in torch.export, too, or has no values to compute with.
        return set(), ""
    once = places_of((*attributes(module), *reached.current()))
    own = {key for key in changed(before, once) if key in before or key[0].startswith("self.")}
    assigned = {path for path, _ in own} | replaced
    began = time.monotonic()
    with again.watching():
        problem = _difference(call, first)
    twice = places_of((*attributes(module), *again.current()))
    roots = {None, *(reached.roots.keys() & again.roots.keys())}
    moving = {path for path, root in changed(once, twice, copied=False) if root in roots}
    number, limit_s = _FURTHER[bool(moving)]
    while problem is None and number and time.monotonic() < began + limit_s:
        problem, number = _difference(call, first), number - 1
    if problem:
        names = ", ".join(sorted(assigned | moving)) or "something in Python"
        what = f"two calls with the same inputs and buffers differ; {_CONSTANT}{names}"
        raise SourceError(method.name, what, _CURE) from problem
    return assigned, ", ".join(sorted(moving))


def _difference(call: Callable[[], Any], first: dict[str, Any]) -> Exception | None:
    """Call a module again; return the error if its results differ from the first ones."""
    try:
        torch.testing.assert_close(call()[0], first, rtol=0, atol=0, equal_nan=True)
    except Exception as error:
        return error
    return None


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
        if known not in copies or not are_equal(copies[known], value):
            copies[known] = value.detach().clone()
    given = {name: copies[id(value)] for name, value in named.items()}
    identities, state = {name: _identity(value) for name, value in given.items()}, dict(given)

    def call(*arguments: Any, **keywords: Any) -> Any:
        return functional_call(module, state, arguments, keywords, tie_weights=False)

    with torch_random_state():
        values = pytree.tree_leaves(called(call, leaves, structure))
    results = [value for value in values if isinstance(value, (torch.Tensor, int, float, complex))]
    replaced = {f"self.{n}" for n, before in identities.items() if _identity(state[n]) != before}
    buffers = [name for name, value in named.items() if not isinstance(value, torch.nn.Parameter)]
    return {"": results, **{name: state[name] for name in buffers}}, replaced


def _identity(value: torch.Tensor) -> Any:
    # What is assigned to the `data` of a tensor leaves no other trace.
    strided = value.layout is torch.strided
    return id(value), StorageWeakRef(value.untyped_storage()).cdata if strided else None  # type: ignore[no-untyped-call]


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
    stage=EXPORT,
    summary="torch.export forgets state outside of buffers, such as attributes and globals, and "
    "leaves traced values in objects that a module holds.",
    upstream="report written 2026-11-27; torch/export/_trace.py, _export_to_torch_ir and "
    "_non_strict_export",
    find=lambda method: (
        [method] if isinstance(method.model, torch.nn.Module) and method.inputs is not None else []
    ),
    during=repeated,
)
QUIRKS = (FORGOTTEN_STATE,)
