"""The search: cases that still fail in the same way, each smaller than the one before.

Delta debugging is Zeller's ddmin. picire 21.8, the library for it, imports pkg_resources, which
setuptools has no more since 82; shrinkray reduces texts, and Hypothesis has its shrinker for its
own choices only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import torch
from attrs import define, evolve, field

from etdev.runtime.child import COMMAND, Child
from etdev_reduce import worker
from etdev_reduce.case import Case, Cases, kept
from etdev_reduce.failure import HANG, INVALID, WRONG, Failure
from etdev_reduce.flows import PORTABLE, Flow
from etdev_reduce.script import source
from etdev_reduce.values import FILLS
from etdev_reduce.worker import Trial

T = TypeVar("T")
# Sizes that are tried in place of larger ones.
_SIZES = (1, 2, 3, 4, 8, 16, 32)
# Parts that nodes are cut into at first.
_WAYS = 8
# A case that takes this many times as long as the first one in portable kernels hangs, if that is
# at least this many seconds.
_PATIENCE, _SHORTEST_S = 10.0, 10.0


class Spent(Exception):
    """The time of the search is up."""


@cache
def trying(*modules: str) -> Child:
    """Return the process of trials, which imports some modules first; it stays for other searches.

    It ends with this process.
    """
    words = (*COMMAND, *modules, worker.__name__)
    return Child("the process of trials", command=words, forks=True)


def ddmin(parts: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return a part of a failing sequence that stops failing without any of its elements.

    A trial takes as long as its part is large, so it begins with nothing and with small parts.
    """
    parts, count = list(parts), 2
    if parts and fails([]):
        return []
    while len(parts) > 1 and (found := next(filter(fails, _windows(parts)), None)):
        parts = found
    while len(parts) > 1:
        size = -(-len(parts) // count)
        rests = (parts[:at] + parts[at + size :] for at in range(0, len(parts), size))
        if found := next(filter(fails, rests), None):
            parts, count = found, max(count - 1, 2)
        elif size == 1:
            break
        else:
            count = min(len(parts), count * 2)
    return parts


def _windows(parts: list[T]) -> Iterator[list[T]]:
    """Yield eighths of a sequence, and those between, for neighbours that a cut would part."""
    size = -(-len(parts) // _WAYS)
    for first in {0, size // 2}:
        yield from (parts[at : at + size] for at in range(first, len(parts) - first, size))


@define(eq=False)
class Search:
    """The search for the smallest cases that fail as the first ones do.

    Args:
        deadline: When it ends, on the clock of `time.monotonic`.
        tell: Called with each step.
        tolerance: Of `Trial`.
        slow: Of `Trial`.
        limit_s: A trial that takes longer hangs.
        child: The process of trials.
        flow: Lowers the cases.
        best: The smallest cases so far.
        failure: Their failure.
        trials: How many trials there were.
    """

    deadline: float
    tell: Callable[[str], None]
    tolerance: float | None = None
    slow: float = 0.0
    limit_s: float = 600.0
    child: Child = field(factory=trying)
    flow: Flow = field(init=False)
    best: Cases = field(init=False)
    failure: Failure = field(init=False)
    trials: int = field(default=0, init=False)
    _known: dict[tuple[str, Flow], Failure] = field(factory=dict, init=False)

    def tried(self, cases: Cases, flow: Flow) -> Failure:
        """Try cases; those that were tried before are not tried again.

        Raises:
            Spent: The time is up.
        """
        key = source(cases), flow
        if key not in self._known:
            start = time.monotonic()
            if start > self.deadline:
                raise Spent
            drawn = {
                name: [case.recording.drawn[number] for number in case.calls]
                for name, case in cases.items()
            }
            trial = Trial(key[0], kept(cases), flow, self.tolerance, self.slow, drawn)
            self.trials += 1
            # A fork ends by itself, long before the time that the process has.
            answer = self.child.run(worker.judge, trial, self.limit_s)
            failed = Failure(INVALID, detail=str(answer.failure))
            found = self._known[key] = answer.values[0] if answer.values else failed
            # The process imports for a first trial, outside of the budget.
            self.deadline += time.monotonic() - start - found.seconds
        return self._known[key]

    def start(self, cases: Cases, flow: Flow, failure: Failure) -> None:
        """Begin with cases; how they fail is what the others have to do, too."""
        self.best, self.flow, self.failure = cases, flow, failure
        if failure.kind == HANG:
            ended = self.tried(cases, PORTABLE)
            self.limit_s = min(self.limit_s, max(_SHORTEST_S, _PATIENCE * ended.seconds))

    def run(self) -> None:
        """Make the cases smaller until nothing helps any more."""
        before = ""
        while before != (before := source(self.best)):
            ddmin([*self.best], lambda own: self._accepts({name: self.best[name] for name in own}))
            for name in self.best:
                self._call(name)
                self._cut(name)
            self.fill()
            for name in self.best:
                self._simplify(name)
                self._replace(name)

    def _accepts(self, cases: Cases) -> bool:
        """Return True, and keep cases, if they fail as the first ones did."""
        if not cases or not all(case.calls and case.outputs for case in cases.values()):
            return False
        failure = self.tried(cases, self.flow)
        if not failure.is_like(self.failure):
            return False
        self.best, self.failure = cases, failure
        count = sum(len(case.nodes) for case in cases.values())
        self.tell(f"{count} node{'s' * (count != 1)}, {self.trials} trials")
        return True

    def _least(self, name: str, parts: Sequence[T], cut: Callable[[Sequence[T]], Case]) -> list[T]:
        """Keep the fewest parts with which the case of a method fails alike.

        Args:
            name: Of the method.
            parts: The parts.
            cut: Returns the case with some of these.
        """
        return ddmin(parts, lambda kept: self._accepts({**self.best, name: cut(kept)}))

    def _call(self, name: str) -> None:
        """Leave out calls, and then sizes that vary."""
        case = self.best[name]
        self._least(name, case.calls, lambda kept: evolve(case, calls=tuple(kept)))
        if case.dynamic:
            self._accepts({**self.best, name: evolve(self.best[name], dynamic=False)})

    def _cut(self, name: str) -> None:
        """Leave out nodes, those of a pattern together at first."""
        case = self.best[name]
        groups = self._least(name, case.groups, case.only)
        self._least(name, [(node,) for group in groups for node in group], case.only)

    def _put(self, name: str, what: str, new: object, old: Sequence[Any]) -> None:
        """Put something simple in the place of as much as possible."""
        self._least(name, old, partial(self.best[name].put, what, new, old))

    def fill(self) -> None:
        """Make values of a seed, all in one way if possible."""
        first = () if self.failure.kind == WRONG else ("ones",)
        for fill in dict.fromkeys((*first, *FILLS)):
            for name in self.best:
                self._put(name, "fills", fill, self.best[name].captured)

    def _simplify(self, name: str) -> None:
        """Put small sizes in place of larger ones, and float32 in place of other floats."""
        for size in _SIZES:
            self._put(name, "sizes", size, self.best[name].larger(size))
        self._put(name, "dtypes", torch.float32, self.best[name].floats)

    def _replace(self, name: str) -> None:
        """Put an input of a node in the place of its result, and read one value for several."""
        case = self.best[name]
        for node in (*reversed(case.nodes), *case.tensors[1:]):
            for other in self.best[name].like(node):
                if self._accepts({**self.best, name: self.best[name].without(node, other)}):
                    break
