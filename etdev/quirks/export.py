"""Example inputs that torch.export merges, and attributes whose assignments it forgets.

Exported programs keep writes in place to buffers and parameters. A value that is assigned to a
buffer is copied into it, whatever its dtype and even if the old tensor is still in use. An
assignment to anything else, such as a counter in Python, is lost.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram
from torch.fx import Node
from torch.multiprocessing.reductions import StorageWeakRef

from etdev.edge.random_state import untouched_random_state
from etdev.edge.reference import called, duplicate, written
from etdev.edge.source import Method
from etdev.errors import EtdevWarning, SourceError
from etdev.schema.quirk import Quirk, Refusal, Stage
from etdev.upstream.fake_tensors import FakeTensor, FunctionalTensor, is_traceable_wrapper_subclass
from etdev.upstream.trees import pytree

_CALLS = 3
_CURE = "keep what changes in buffers, and write to them in place, as self.state.copy_(new) does"
_PLAIN = (int, float, complex, str, bytes)
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
        prefix = f"self.{name}" if name else "self"
        own = vars(each)
        for owner in (own, own["_buffers"], own["_parameters"]):
            for key, value in owner.items():
                if key not in ("_buffers", "_parameters", "_modules"):
                    look(f"{prefix}.{key}", owner, key, value)
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
def watched(found: Sequence[Method]) -> Iterator[Callable[[ExportedProgram], None]]:
    """Watch what the calls of a module assign to while it is exported, and put it back.

    Yields:
        A function that checks the program, if there was something.
    """
    (method,) = found
    model: Any = method.model
    assigned: set[str] = set()
    before = given = _places(model)

    def look(*_: Any) -> None:
        nonlocal before
        before = _places(model)

    def compare(*_: Any) -> None:
        assigned.update(_changed(before, _places(model)))

    def check(program: ExportedProgram) -> None:
        if assigned:
            _check_assigned(method, program, assigned)

    hooks = [model.register_forward_pre_hook(look), model.register_forward_hook(compare)]
    try:
        yield check
    finally:
        for hook in hooks:
            hook.remove()
        for path, place in _places(model).items():
            if not _is_traced(place.value) or isinstance(place.owner, tuple):
                continue
            if path in given:
                place.owner[place.key] = given[path].value
            elif isinstance(place.owner, dict):
                del place.owner[place.key]


def _is_traced(value: Any) -> bool:
    """Return True if torch.export made a value for tracing, and left it in an object."""
    return isinstance(value, (FakeTensor, FunctionalTensor))


def _check_assigned(method: Method, program: ExportedProgram, assigned: set[str]) -> None:
    """Compare several calls of a module that assigns to its attributes with its program.

    Raises:
        SourceError: A call of the program computes something else.
    """
    module: Any = method.model
    try:
        alike, counters = _compared(module, program)
    except Exception:
        # Such as modules that can't be copied, or whose example inputs have no values.
        held = _places(module)
        alike = not any(_is_traced(held[name].value) for name in assigned if name in held)
        counters = assigned
    if not alike:
        what = f"its calls assign to {', '.join(sorted(assigned))}, and torch.export forgets it"
        raise SourceError(method.name, what, _CURE)
    if counters:
        what = f"its calls assign to {', '.join(sorted(counters))}, which stays as it is now"
        warnings.warn(f"{method.name}: {what}; {_CURE}", EtdevWarning, stacklevel=2)


def _compared(module: torch.nn.Module, program: ExportedProgram) -> tuple[bool, set[str]]:
    """Return True if calls of a module and its program agree, and the numbers that they change."""
    state = dict.fromkeys(written(program))
    eager, exported = duplicate(module, state), duplicate(program.module(), state)
    leaves, structure = pytree.tree_flatten(program.example_inputs)
    numbers: dict[str, _Place] = {}
    changed: set[str] = set()
    for call in range(_CALLS):
        # Other values for each call, so that old and new state differ.
        floats = [isinstance(v, torch.Tensor) and v.is_floating_point() for v in leaves]
        pairs = zip(leaves, floats, strict=True)
        inputs = [value * (1 - call / 8) if varies else value for value, varies in pairs]
        with untouched_random_state():
            expected = called(eager, inputs, structure)
        try:
            with untouched_random_state():
                given = called(exported, inputs, structure)
            torch.testing.assert_close(given, expected, equal_nan=True, check_stride=False)
        except (AssertionError, RuntimeError):
            return False, set()
        now = {n: place for n, place in _places(eager).items() if isinstance(place.value, _PLAIN)}
        numbers, changed = now, _changed(numbers, now)
    return True, changed


def _tensors(method: Method) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves((method.inputs, method.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def repeated_inputs(method: Method) -> list[torch.Tensor]:
    """Return the example inputs that are one tensor with another."""
    times = Counter(map(id, _tensors(method)))
    return [value for value in _tensors(method) if times[id(value)] > 1]


def untraceable_inputs(method: Method) -> list[torch.Tensor]:
    """Return the example inputs made in inference mode, or with a negative or conjugate to take."""
    values = _tensors(method)
    return [value for value in values if value.is_inference() or value.is_neg() or value.is_conj()]


def copy_inputs(method: Method, _: Sequence[torch.Tensor]) -> Method:
    """Make the example inputs tensors of their own, which torch can trace."""
    seen: set[int] = set()

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        copied = id(value) in seen or value.is_inference()
        seen.add(id(value))
        return (value.clone() if copied else value).resolve_neg().resolve_conj()

    inputs, kwargs = pytree.tree_map(own, (method.inputs, method.kwargs))
    return evolve(method, inputs=inputs, kwargs=kwargs)


def ignored_inputs(method: Method) -> list[Node]:
    """Return the inputs that torch.export merged with another, since their examples were one."""
    program = method.model
    if not isinstance(program, ExportedProgram):
        return []
    examples = pytree.tree_leaves(program.example_inputs)
    times = Counter(id(value) for value in examples if isinstance(value, torch.Tensor))
    names = zip(program.graph_signature.user_inputs, examples, strict=False)
    repeated = {str(name) for name, value in names if times[id(value)] > 1}
    inputs = program.graph.find_nodes(op="placeholder")
    return [node for node in inputs if node.name in repeated and not node.users]


MERGED_INPUTS = Quirk(
    name="merged-inputs",
    stage=Stage.EXPORT,
    summary="torch.export makes one input of a tensor that is given as two, and the second is "
    "ignored when the program runs.",
    upstream="not reported; torch/_subclasses/meta_utils.py, MetaConverter",
    affects="torch<2.15",
    find=repeated_inputs,
    fix=copy_inputs,
)
UNTRACEABLE_INPUTS = Quirk(
    name="untraceable-inputs",
    stage=Stage.EXPORT,
    summary="torch.export can't trace inputs that were made under torch.inference_mode(), or whose "
    "negative or conjugate is still to be taken.",
    upstream="not reported; torch/_subclasses/meta_utils.py, MetaConverter",
    affects="torch<2.15",
    find=untraceable_inputs,
    fix=copy_inputs,
)
IGNORED_INPUTS = Quirk(
    name="ignored-inputs",
    stage=Stage.EXPORT,
    summary="A program that was exported with one tensor as two inputs ignores the second.",
    upstream="not reported; torch/_subclasses/meta_utils.py, MetaConverter",
    affects="torch<2.15",
    find=ignored_inputs,
    refusal=Refusal(
        "was exported with one tensor as two inputs and ignores {found.name!r}",
        "export it with different tensors",
        error=SourceError,
        warns=True,
    ),
)
FORGOTTEN_ATTRIBUTES = Quirk(
    name="forgotten-attributes",
    stage=Stage.EXPORT,
    summary="torch.export forgets what a call assigns to attributes and to the data of a buffer, "
    "and leaves traced values in objects that a module holds.",
    upstream="not reported; torch/export/_trace.py, _export_to_torch_ir and _non_strict_export",
    affects="torch<2.15",
    find=lambda method: [method] if isinstance(method.model, torch.nn.Module) else [],
    during=watched,
)
QUIRKS = (MERGED_INPUTS, UNTRACEABLE_INPUTS, IGNORED_INPUTS, FORGOTTEN_ATTRIBUTES)
