"""State outside of buffers, which torch.export forgets: two calls with the same inputs differ.

Exported programs keep writes in place to buffers and parameters. A value that is assigned to a
buffer is copied into it, whatever its dtype and even if the old tensor is still in use. Any other
state, such as a counter in Python, stays as it was during the export.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import CellType

import torch
from torch.export import ExportedProgram
from torch.func import functional_call
from torch.multiprocessing.reductions import StorageWeakRef

from etdev.edge.advice import eager_error
from etdev.edge.reference import (
    called,
    duplicates,
    torch_random_state,
    untouched_random_state,
)
from etdev.errors import EtdevWarning, SourceError
from etdev.quirks.variables import Identities, Variable, identities, variables_of
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
# Floats are multiplied by these, so that what is kept from the call before differs.
_FACTORS = (1, 7 / 8, 6 / 8)


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
    model = method.model
    assert isinstance(model, torch.nn.Module)
    module = model
    # A module that can't be copied, such as one that holds a generator, is called itself.
    with suppress(Exception):
        (module,) = duplicates([model], [{}])
    with untouched_random_state(), _deterministic():
        assigned, moving = _repeat(method, module)
    given = variables_of(model)

    def check(program: ExportedProgram) -> str | None:
        if assigned and not _agree(module, program):
            what = f"assigns to {_list(assigned)}, which torch.export does not preserve"
            raise SourceError(method.name, what, _CURE)
        if not moving:
            return None
        warnings.warn(f"{method.name}: {_CONSTANT}{_list(moving)}; {_CURE}", EtdevWarning, 2)
        return _CONSTANT + _list(moving)

    try:
        yield check
    finally:
        _untrace(variables_of(model), given)


def _untrace(variables: Iterable[Variable], given: Iterable[Variable]) -> None:
    """Set variables with traced values to those that they had before."""
    values = {(id(owner), key): value for _, owner, key, value in given}
    for _, owner, key, value in variables:
        if isinstance(value, (FakeTensor, FunctionalTensor)):
            before = values.get((id(owner), key))
            if before is not None and isinstance(owner, (dict, list)):
                owner[key] = before
            elif before is not None and isinstance(owner, CellType):
                owner.cell_contents = before
            elif isinstance(owner, dict):
                del owner[key]


@contextmanager
def _deterministic() -> Iterator[None]:
    """Use deterministic kernels, which a CPU with several threads needs, too."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_deterministic_debug_mode(before)


def _repeat(method: Method, module: torch.nn.Module) -> tuple[set[str], set[str]]:
    """Call a module again with the same inputs, parameters, buffers and random state of torch.

    Returns:
        The names of what a call assigns to, and of what each call changes though no call so far
        depends on it.

    Raises:
        SourceError: The calls differ.
    """
    leaves, structure = pytree.tree_flatten((method.inputs, method.kwargs))
    before = identities(module)
    try:
        first, replaced = _results(module, leaves, structure)
        torch.testing.assert_close(first, first, equal_nan=True)
    except Exception:
        tensors = [*leaves, *module.parameters(), *module.buffers()]
        if any(isinstance(t, FakeTensor) or getattr(t, "is_meta", False) for t in tensors):
            return set(), set()
        # torch.export may not notice, since its tensors have no values.
        if refused := eager_error(method):
            raise refused from refused.__cause__
        return set(), set()
    once, error = identities(module), None
    try:
        second, _ = _results(module, leaves, structure)
        torch.testing.assert_close(second, first, rtol=0, atol=0, equal_nan=True)
    except Exception as problem:
        error = problem
    twice = identities(module)
    assigned, moving = _changed(before, once) | replaced, _changed(once, twice)
    if error:
        names = _list(assigned | moving) or "something in Python"
        what = f"two calls with the same inputs and buffers differ; {_CONSTANT}{names}"
        raise SourceError(method.name, what, _CURE) from error
    return assigned, moving


def _results(
    module: torch.nn.Module, leaves: Sequence[object], structure: pytree.TreeSpec
) -> tuple[dict[str, object], set[str]]:
    """Call a module with copies of its parameters and buffers.

    A call that fails is repeated with compiled scans, which some need.

    Returns:
        Its results and the new values of buffers, and the names of buffers that were assigned to.
    """
    try:
        return _results_of_call(module, leaves, structure, scans=False)
    except Exception:
        return _results_of_call(module, leaves, structure, scans=True)


def _results_of_call(
    module: torch.nn.Module, leaves: Sequence[object], structure: pytree.TreeSpec, scans: bool
) -> tuple[dict[str, object], set[str]]:
    named = {
        f"{prefix}.{name}" if prefix else name: value
        for prefix, each in module.named_modules()
        for part in (each.named_parameters, each.named_buffers)
        for name, value in part(recurse=False, remove_duplicate=False)
        # A quantised weight made of several tensors is written by no call.
        if not is_traceable_wrapper_subclass(value)
    }
    # Tied tensors stay tied.
    copies = {id(value): value.detach().clone() for value in named.values()}
    state = {name: copies[id(value)] for name, value in named.items()}
    given = {name: _memory(value) for name, value in state.items()}

    def call(*arguments: object, **keywords: object) -> object:
        return functional_call(module, state, arguments, keywords, tie_weights=False)

    with torch_random_state():
        values = pytree.tree_leaves(called(call, leaves, structure, scans))
    results = [value for value in values if isinstance(value, (torch.Tensor, int, float, complex))]
    replaced = {f"self.{name}" for name, value in state.items() if _memory(value) != given[name]}
    buffers = [name for name, value in named.items() if not isinstance(value, torch.nn.Parameter)]
    return {"": results, **{name: state[name] for name in buffers}}, replaced


def _memory(value: torch.Tensor) -> tuple[int, object]:
    """Return what stays equal while nothing is assigned to a tensor, or to its `data`."""
    strided = value.layout is torch.strided
    return id(value), StorageWeakRef(value.untyped_storage()).cdata if strided else None  # type: ignore[no-untyped-call]


def _agree(module: torch.nn.Module, program: ExportedProgram) -> bool:
    """Return True if calls of a module and its program agree, on several inputs."""
    exported, (leaves, structure) = program.module(), pytree.tree_flatten(program.example_inputs)
    for factor in _FACTORS:
        floats = [isinstance(v, torch.Tensor) and v.is_floating_point() for v in leaves]
        pairs = zip(leaves, floats, strict=True)
        inputs = [value * factor if varies else value for value, varies in pairs]
        try:
            expected, _ = _results(module, inputs, structure)
        except Exception:  # It may check its inputs.
            continue
        try:
            given, _ = _results(exported, inputs, structure)
            both = expected.keys() & given.keys()
            pair = ({name: values[name] for name in both} for values in (given, expected))
            torch.testing.assert_close(*pair, equal_nan=True)
        except Exception:
            return False
    return True


def _changed(before: Identities, after: Identities) -> set[str]:
    """Return the names of variables whose values were replaced, added or removed."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


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
