"""Calls on which candidates are compared, with the outputs of eager PyTorch."""

from __future__ import annotations

import math
import operator
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, field, frozen
from blake3 import blake3

from etdev.app import EagerMethod
from etdev.errors import TuneError, VerifyError
from etdev_tune.metric import Call, Metric

# Calls of each method that are compared, or as many as are given.
_CALLS = 3
# Smaller values are 0 to kernels that flush denormals, and to any tolerance.
_TINY = 1e-20
_CURE = "give some with --inputs, or inputs= in Python, that it computes something for"


class Leaves(tuple[Any, ...]):
    """Flat inputs of a call, as a file has them."""


@frozen(eq=False)
class Case:
    """Consecutive calls of one method in eager PyTorch, which carry its state on.

    Args:
        timed: Positions of the calls that are timed.
        metric: A figure of the outputs of all calls.
        weight: Weight of the time of each timed call.
    """

    method: str
    calls: tuple[Call, ...]
    timed: tuple[int, ...]
    metric: Metric | None = None
    weight: float = 1.0
    digest: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        values = [_plain(value) for call in self.calls for value in (*call.inputs, *call.outputs)]
        named = [self.metric.digest] if self.metric else []
        content = pickle.dumps((self.method, self.timed, values, *named), 4)
        object.__setattr__(self, "digest", blake3(content).hexdigest())


def cases_of(
    methods: Mapping[str, EagerMethod], inputs: Any = None, least: int = _CALLS
) -> list[Case]:
    """Call every method in eager PyTorch at least `least` times, with inputs as `tune` takes them.

    Without inputs, the example inputs are taken, and fresh ones like them with dynamic sizes at
    their bounds. A file's inputs are `Leaves`.
    """
    by_method = isinstance(inputs, Mapping)
    if by_method and (unknown := set(inputs) - set(methods)):
        what = f"there is no method {sorted(unknown)[0]!r}"
        raise TuneError("inputs", what, f"the methods are {', '.join(methods)}")
    return [
        _case(method, inputs.get(name) if by_method else inputs, least)
        for name, method in methods.items()
    ]


def weighted(cases: Sequence[Case], weights: Mapping[str, float]) -> list[Case]:
    """Return cases that count by the calls of their methods; methods without a number don't."""
    names = [case.method for case in cases]
    if unknown := set(weights) - set(names):
        what = f"there is no method {sorted(unknown)[0]!r}"
        raise TuneError("weight", what, f"the methods are {', '.join(names)}")
    if not 0 < sum(weights.values()) < math.inf or min(weights.values()) < 0:
        raise TuneError("weight", f"is {dict(weights)}", "give numbers of calls, one above 0")
    return [evolve(case, weight=weights.get(case.method, 0) / len(case.timed)) for case in cases]


def error_of(case: Case, outputs: Sequence[Sequence[Any]]) -> float:
    """Return the largest error of any output of any call, as `EagerMethod.error` has it."""
    if len(outputs) != len(case.calls):
        return math.inf
    pairs = zip(case.calls, outputs, strict=True)
    return max((EagerMethod.error(call.outputs, own) for call, own in pairs), default=0.0)


def _case(method: EagerMethod, inputs: Any, least: int) -> Case:
    who = f"method {method.name!r}"
    if method.is_random:
        what = "changes its answer between runs, so no candidate can be held against it"
        raise TuneError(who, what, "seed it inside, or take the randomness out")
    calls = inputs if isinstance(inputs, list) else [] if inputs is None else [inputs]
    given = [
        _flat(method, call) if isinstance(call, Leaves) else method.flat(call) for call in calls
    ]
    try:
        session = [Call(one.inputs, one.outputs) for one in method.calls(given, least)]
    except VerifyError as error:
        raise TuneError(who, error.what, _CURE) from error
    # Calls that PyTorch refuses are missing.
    used = [value for call in session[: len(given)] for value in call.inputs]
    wanted = [value for call in given for value in call]
    if len(used) != len(wanted) or not all(map(operator.is_, used, wanted)):
        raise TuneError(who, "eager PyTorch can't run the given inputs", _CURE)
    _refuse_idle(who, session)
    timed = tuple(range(len(given))) if given else _sampled(session)
    return Case(method.name, tuple(session), timed)


def _flat(method: EagerMethod, leaves: Leaves) -> list[Any]:
    """Insert None into flat inputs where the example has it, since files leave it out."""
    example = method.example()
    if len(leaves) == len(example):
        return list(leaves)
    wanted = sum(value is not None for value in example)
    if len(leaves) != wanted:
        what = f"{len(leaves)} inputs are given, it takes {wanted}"
        raise TuneError(f"method {method.name!r}", what, "give one for each")
    values = iter(leaves)
    return [None if value is None else next(values) for value in example]


def _sampled(session: Sequence[Call]) -> tuple[int, ...]:
    """Return the position of the first call of each combination of sizes."""
    first: dict[Any, int] = {}
    for index, call in enumerate(session):
        sizes = tuple(tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in call.inputs)
        first.setdefault(sizes, index)
    return tuple(first.values())


def _refuse_idle(who: str, session: Sequence[Call]) -> None:
    """Refuse calls whose results a wrong candidate would have, too."""
    kinds = (torch.Tensor, int, float, bool)
    outputs = [value for call in session for value in call.outputs if isinstance(value, kinds)]
    values = [tensor for v in outputs if (tensor := torch.as_tensor(v).detach()).numel()]
    # An index or a flag may well be 0.
    floats = [v for v in values if v.is_floating_point() or v.is_complex()]
    moved = any(bool((v.isfinite() & (v.abs() > _TINY)).any()) for v in floats)
    if not moved and (floats or not values):
        what = "no inputs exercise it: all it returns is 0, NaN, infinite or empty"
        raise TuneError(who, what, _CURE)


def _plain(value: Any) -> Any:
    """Return a value as bytes, shape and dtype, or text, for a digest."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    dense = value.detach().contiguous().reshape(-1)
    data = dense.view(torch.uint8) if dense.numel() else dense
    return str(value.dtype), tuple(value.shape), data.numpy().tobytes()
