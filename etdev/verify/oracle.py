"""The oracle: the values that are right for a call, and how far rounding may move them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any

import torch
from attrs import define, evolve, field, frozen

from etdev.edge.reference import Reference, called, duplicates, modules_of
from etdev.edge.simplify import folding
from etdev.graph.nodes import calls_in
from etdev.upstream.rounding import NanFinder, RandomRounding
from etdev.upstream.ties import ShuffledTies
from etdev.verify.inputs import EXACT, constants_of, is_float, open_ties
from etdev.verify.output_error import errors_of

# Perturbed calls show how far outputs move. A program rounds in other places, so it may move them
# this many times as far.
_RUNS, _MARGIN = 16, 4
# Rounding is perturbations by these many units in the last place, twice as far. Where inputs are
# exact, those of inputs count half: a number that jumps, as at a multiple of a divisor, may do so
# after a sum or a function alone.
_UNITS, _MORE, _LESS = 4, 2.0, 0.5
# Near ties are decided by perturbations of these many units in the last place.
_NEAR = 32
# Rounding decides a result that changes by this part of itself in most runs, such as the inverse of
# a matrix that has none.
_DECIDES = 0.9
# Kernels multiply in another order, so that what is larger than this power of the largest number
# may overflow; that number itself is a fill.
_HEADROOM = 0.9


@frozen(eq=False)
class EagerCall:
    """A call in eager PyTorch: flat inputs, outputs, inputs after it, and the state before it.

    Args:
        reference: The method.
        edge: The edge value that its inputs have; empty for ordinary inputs.
        drawn: Its inputs or its state may be far from the example, or where rounding decides, so
            that outputs may be off as far as perturbations move them.
    """

    reference: Reference
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    after: Sequence[Any]
    state: Mapping[str, Any]
    edge: str = ""
    drawn: bool = False

    @property
    def results(self) -> list[Any]:
        """Outputs, and inputs after the call."""
        return [*self.outputs, *self.after]

    def reads(self, state: str) -> bool:
        """Return True if outputs change when a tensor of the state does."""
        value = self.state[state]
        # Zero shows a counter that is past all numbers that the method compares it with.
        is_bool = value.dtype == torch.bool
        others = [~value] if is_bool else [value * 2 + 1, value + 1, value * 0]
        return any(self._differs(state, other) for other in others)

    def _differs(self, state: str, value: torch.Tensor) -> bool:
        own = evolve(self.reference, state={**self.state, state: value})
        # Such as a position that is out of bounds then.
        with suppress(Exception):
            (module,) = modules_of([own])
            return not agree(_results(module, self), self.results, tolerance=0.0)
        return True

    def moved(self, error: float) -> Iterator[list[torch.Tensor]]:
        """Yield how far each number may move if inputs and weights have a relative error.

        Each of several lists has what was seen so far, by result.
        """
        expected = list(map(torch.as_tensor, self.results))
        moved = [torch.zeros(own.shape, dtype=torch.float64) for own in expected]
        for outputs in self._perturbed(error):
            for far, made, own in zip(moved, map(torch.as_tensor, outputs), expected, strict=True):
                if made.shape == own.shape:
                    far.copy_(far.maximum(_MARGIN * errors_of(made, own).nan_to_num(0.0)))
            yield moved

    def rounded(self) -> list[torch.Tensor]:
        """Return how far each number moves by rounding, whatever its size.

        Where rounding decides the whole result, each number may move as far as any of them. So it
        does if the result changes by its own size in most calls, and in float64, too; but not if
        only other inputs change it.
        """
        if not self._is_exact:
            return self._moved_by_rounding(_MORE)
        moved = zip(
            self._moved_by_rounding(_LESS),
            self._moved_by_rounding(_MORE, only_ops=True),
            strict=True,
        )
        return [far.maximum(behind_ops) for far, behind_ops in moved]

    def _moved_by_rounding(self, factor: float, only_ops: bool = False) -> list[torch.Tensor]:
        expected = list(map(torch.as_tensor, self.results))
        moved = [torch.zeros(own.shape, dtype=torch.float64) for own in expected]
        decides = [0] * len(expected)
        for outputs in self._perturbed(None, not self.drawn, only_ops):
            for place, made in enumerate(map(torch.as_tensor, outputs)):
                if made.shape == moved[place].shape:
                    far = errors_of(made, expected[place]).nan_to_num(0.0)
                    moved[place] = moved[place].maximum(far)
                    decides[place] += _is_another(far, expected[place])
        exact = map(torch.as_tensor, self.exact() if any(decides) else ())
        for place, (made, own) in enumerate(zip(exact, expected, strict=False)):
            decides[place] *= _is_another(errors_of(made, own).nan_to_num(0.0), own)
        return [
            (_MARGIN * far.max()).expand(far.shape)
            if count > _RUNS / 2 and factor > _LESS
            else far * factor
            for far, count in zip(moved, decides, strict=True)
        ]

    def nearby(self) -> Iterator[list[Any]]:
        """Return other results that rounding may give, such as near ties in another order."""
        return self._perturbed(None, not self.drawn, self._is_exact, _NEAR)

    @cached_property
    def _constants(self) -> list[float]:
        return constants_of(self.reference.program)

    @property
    def _is_exact(self) -> bool:
        """True if no input is rounded, so that only some ops round what is computed from them.

        A constant of the program, such as 0.3, is not; what is compared with it is the same number.
        """
        known = torch.tensor(self._constants, dtype=torch.float64)
        inputs = filter(is_float, self.inputs)
        return all(((v * EXACT % 1 == 0) | torch.isin(v.abs(), known.to(v))).all() for v in inputs)

    @property
    def meets_nan(self) -> bool:
        """True if an op of the call returns NaN for numbers, which few kernels keep."""
        finder = NanFinder()
        with suppress(Exception), torch.no_grad():
            module = self._module()
            with finder:
                _results(module, self)
        return finder.found

    def undecided(self, error: float, quantised: bool = False) -> Iterator[list[torch.Tensor]]:
        """Yield where each result changes if inputs and weights have a relative error.

        The place of a maximum changes, for example, if the second largest value is close to it.
        Equal numbers of a tensor stay equal in a call that is not drawn, so the first of several
        equal values is decided. Each of several lists has what was seen so far.
        """
        expected = list(map(torch.as_tensor, self.results))
        masks = [torch.zeros_like(own, dtype=torch.bool) for own in expected]
        yield masks
        for outputs in self._perturbed(error, tied=not self.drawn, by_steps=quantised):
            for mask, made, own in zip(masks, map(torch.as_tensor, outputs), expected, strict=True):
                mask |= made != own if made.shape == own.shape else True
            yield masks

    def exact(self) -> list[Any]:
        """Return the results with floats computed in float64; none where PyTorch can't."""
        with suppress(Exception):
            # State in Python may have changed since then.
            if not agree(_results(self._module(), self), self.results):
                return []
            inputs = [self._doubled(value) if is_float(value) else value for value in self.inputs]
            results = _results(self._module().double(), evolve(self, inputs=inputs))
            pairs = zip(results, self.results, strict=True)
            return [made.to(own.dtype) if is_float(own) else own for made, own in pairs]
        return []

    def _doubled(self, value: torch.Tensor) -> torch.Tensor:
        """Return floats in float64; one that equals a rounded constant is the constant itself."""
        made = value.double()
        for known in self._constants:
            same = value.abs() == torch.tensor(known).to(value)
            made = torch.where(same, made.sign() * known, made)
        return made

    def _perturbed(
        self,
        error: float | None,
        tied: bool = False,
        only_ops: bool = False,
        units: int = _UNITS,
        by_steps: bool = False,
    ) -> Iterator[list[Any]]:
        """Yield results for inputs and weights with relative errors, up or down.

        Without an error, they are off by `units` in the last place. With `tied`, equal numbers
        of a tensor stay equal. With `only_ops`, all inputs and weights stay as they are. Where
        PyTorch leaves the order of equal values open, it is random, and every second call has no
        errors, since they undo exact cancellations. Ops round as other kernels may. With
        `by_steps`, quantisers are off, since their weights are not, and there are more calls.
        """
        errors = [error, 0.0] if open_ties(self.reference.program) else [error]
        numbers = torch.Generator().manual_seed(0)

        def off(value: Any, own: float | None) -> Any:
            if own == 0.0 or only_ops or not is_float(value):
                return value
            own = units * torch.finfo(value.dtype).eps if own is None else own
            known, places = torch.unique(value, return_inverse=True) if tied else (value, ...)
            signs = torch.randint(2, known.shape, generator=numbers)[places] * 2 - 1
            return value + value * own * signs

        # Such as a module that can't be copied.
        with suppress(Exception), torch.no_grad():
            (model,) = modules_of([self._before])
            # State in Python may have changed since then.
            if not agree(_results(copy.deepcopy(model), self), self.results):
                return
            for own in errors * (_RUNS * 4 if by_steps else _RUNS):
                module = copy.deepcopy(model)
                for weight in chain(module.parameters(), module.buffers()):
                    weight.copy_(off(weight, own))
                inputs = [off(value, own) for value in self.inputs]
                ops = RandomRounding(numbers, units if own is None else 0, by_steps)
                with ShuffledTies(numbers), ops:
                    results = _results(module, evolve(self, inputs=inputs))
                yield results

    def _module(self) -> torch.nn.Module:
        """Return a copy of the module with the state that it had before the call."""
        (module,) = copy.deepcopy(modules_of([self._before]))
        return module

    @property
    def _before(self) -> Reference:
        """The method before the call; its program, if it scans, since modes refuse torch's scan."""
        own = evolve(self.reference, state=self.state)
        if not self.reference.scans:
            return own
        return evolve(own, method=evolve(own.method, model=own.program))


@define(eq=False)
class Oracle:
    """Methods in eager PyTorch, which share the state that their modules share.

    Args:
        references: The methods.
    """

    references: Sequence[Reference]
    _modules: list[torch.nn.Module] = field(init=False)
    _drawn: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._modules = modules_of(self.references)

    def call(
        self, reference: Reference, inputs: Sequence[Any], edge: str = "", drawn: bool = False
    ) -> EagerCall:
        """Call a method with the state that earlier calls left, as drawn as theirs.

        A call that fails leaves the state as it was.

        Raises:
            OverflowError: A drawn call returns NaN, or numbers that overflow, or nearly.
        """
        before, (_, structure) = self.state(reference), reference.example()
        modules = duplicates(self._modules, [known.state for known in self.references])
        module = modules[self.references.index(reference)]
        outputs, after = called(module, inputs, structure, reference.scans)
        if drawn and any(map(_overflows, outputs)):
            raise OverflowError(reference.method.name)
        self._modules, self._drawn = modules, self._drawn or drawn
        free = drawn or (self._drawn and bool(reference.state))
        return EagerCall(reference, inputs, outputs, after, before, edge, free)

    def state(self, reference: Reference) -> dict[str, Any]:
        """Return copies of the values that the state of a method has now."""
        module = self._modules[self.references.index(reference)]
        held = chain(module.named_parameters(), module.named_buffers())
        return {name: value.detach().clone() for name, value in held if name in reference.state}


def is_random(reference: Reference) -> bool:
    """Return True if two calls differ that are equal but for the seed of random numbers."""
    if not any(map(folding.is_random, calls_in(reference.program.graph_module))):
        return False
    leaves, _ = reference.example()
    results = []
    with torch.random.fork_rng(devices=[]), suppress(Exception):
        for seed in range(2):
            before = torch.manual_seed(seed).get_state()
            results.append(Oracle([reference]).call(reference, leaves).outputs)
            # Dropout draws no numbers in a model that is not trained.
            if torch.equal(before, torch.get_rng_state()):
                return False
    return len(results) == 2 and not agree(results[0], results[1], tolerance=0.0)


def _results(module: torch.nn.Module, call: EagerCall) -> list[Any]:
    _, structure = call.reference.example()
    outputs, after = called(module, call.inputs, structure, call.reference.scans)
    return [*outputs, *after]


def _overflows(value: Any) -> bool:
    """Return True if a value has NaN, infinities, or floats near the largest one."""
    made = torch.as_tensor(value)
    far = ~made.isfinite()
    if made.is_floating_point():
        most = torch.finfo(made.dtype).max
        far |= (made.abs() > most**_HEADROOM) & (made.abs() < most)
    return bool(far.any())


def _is_another(error: torch.Tensor, value: torch.Tensor) -> bool:
    """Return True if a value is off by about its own size."""
    size = errors_of(value, torch.zeros_like(value)).nan_to_num(0.0).norm()
    return bool(error.norm() > _DECIDES * size)


def agree(values: Sequence[Any], others: Sequence[Any], tolerance: float | None = None) -> bool:
    """Return True if values are equal within a tolerance; None takes torch's for their dtypes."""
    try:
        torch.testing.assert_close(
            list(values), list(others), rtol=tolerance, atol=tolerance, equal_nan=True
        )
    # A string can't be compared.
    except (AssertionError, TypeError):
        return False
    return True
