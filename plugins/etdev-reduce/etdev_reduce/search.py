"""The search: cases that still fail in the same way, each smaller than the one before.

Delta debugging is Zeller's ddmin. picire 21.8, the library for it, imports pkg_resources, which
setuptools has no more since 82; shrinkray reduces texts, and Hypothesis has its shrinker for its
own choices only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from attrs import define, evolve, field

from etdev.runtime.child import COMMAND, Child
from etdev_reduce import worker
from etdev_reduce.case import Case, Recording
from etdev_reduce.failure import HANG, INVALID, WRONG, Failure
from etdev_reduce.flows import PORTABLE, Flow
from etdev_reduce.values import fills
from etdev_reduce.worker import Trial

T = TypeVar("T")
# Sizes that are tried in place of larger ones.
_SIZES = (1, 2, 3, 4, 8, 16, 32)
# Values that are tried in place of the model's, the first ones for wrong values.
_FIRST = ("normal", "positive", "scaled")
_OTHERS = ("ties", "levels", "edges", "normal", "scaled", "positive", "ones", "zeros")
# Parts that nodes are cut into at first.
_WAYS = 8
# A case that takes this many times as long as the first one in portable kernels hangs.
_PATIENCE = 10.0
# Time in seconds for the process of trials itself, which ends a case that hangs.
_SPARE_S = 300.0


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

    A trial takes as long as its part is large, so it begins with small parts.
    """
    parts, count = list(parts), 2
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
    """The search for the smallest case that fails as the first one does.

    Args:
        folder: Folder for captured values.
        deadline: When it ends, on the clock of `time.monotonic`.
        tell: Called with each step.
        tolerance: Of `Trial`.
        slow: Of `Trial`.
        limit_s: A case that takes longer hangs.
        child: The process of trials.
        flow: Lowers the cases.
        best: The smallest case so far.
        failure: Its failure.
        trials: How many cases were tried.
    """

    folder: Path
    deadline: float
    tell: Callable[[str], None]
    tolerance: float | None = None
    slow: float = 0.0
    limit_s: float = 600.0
    child: Child = field(factory=trying)
    flow: Flow = field(init=False)
    best: Case = field(init=False)
    failure: Failure = field(init=False)
    trials: int = field(default=0, init=False)
    _known: dict[str, Failure] = field(factory=dict, init=False)
    # The files of the values of recordings.
    _files: dict[Recording, str] = field(factory=dict, init=False)

    def tried(self, case: Case, flow: Flow) -> Failure:
        """Try a case; one that was tried before is not tried again.

        Raises:
            Spent: The time is up.
        """
        source = case.source()
        key = f"{source}{flow}"
        if key not in self._known:
            if time.monotonic() > self.deadline:
                raise Spent
            self._warm(flow)
            values = self._stored(case) if case.captured else ""
            drawn = [case.recording.drawn[number] for number in case.calls]
            trial = Trial(source, values, flow, self.tolerance, self.slow, drawn)
            self.trials += 1
            answer = self.child.run(
                worker.judge, trial, self.limit_s, limit_s=self.limit_s + _SPARE_S
            )
            failed = Failure(INVALID, detail=str(answer.failure))
            self._known[key] = answer.values[0] if answer.values else failed
        return self._known[key]

    def _warm(self, flow: Flow) -> None:
        """Let the process of trials import what a flow needs, outside of the budget."""
        start = time.monotonic()
        self.child.run(worker.warm, flow, limit_s=_SPARE_S)
        self.deadline += time.monotonic() - start

    def _stored(self, case: Case) -> str:
        """Write the values of a recording once; return the file."""
        recording = case.recording
        if recording not in self._files:
            self._files[recording] = str(self.folder / f"{len(self._files)}.pt")
            torch.save(recording.values(), self._files[recording])
        return self._files[recording]

    def start(self, case: Case, flow: Flow, failure: Failure) -> None:
        """Begin with a case; how it fails is what the others have to do, too."""
        self.best, self.flow, self.failure = case, flow, failure
        if failure.kind == HANG:
            ended = self.tried(case, PORTABLE)
            self.limit_s = min(self.limit_s, max(20.0, _PATIENCE * ended.seconds))

    def accepts(self, case: Case) -> bool:
        """Return True, and keep a case, if it fails as the first one did."""
        if not case.nodes or not case.outputs:
            return False
        failure = self.tried(case, self.flow)
        if not failure.is_like(self.failure):
            return False
        self.best, self.failure = case, failure
        count = len(case.nodes)
        self.tell(f"{count} node{'s' * (count != 1)}, {self.trials} trials")
        return True

    def run(self) -> None:
        """Make the case smaller until nothing helps any more."""
        before = ""
        while before != (before := self.best.source()):
            self._call()
            self._cut()
            self.fill()
            self._shrink()
            self._cast()
            self._replace()

    def _call(self) -> None:
        """Leave out calls, and then sizes that vary."""
        ddmin(self.best.calls, lambda calls: self.accepts(evolve(self.best, calls=tuple(calls))))
        if self.best.dynamic:
            self.accepts(evolve(self.best, dynamic=False))

    def _cut(self) -> None:
        """Leave out nodes, those of a pattern together at first."""
        kept = {*self.best.nodes}
        groups = [[n for n in group if n in kept] for group in self.best.recording.groups]
        order = {node: number for number, node in enumerate(self.best.nodes)}

        def fails(groups: Sequence[Sequence[Any]]) -> bool:
            nodes = sorted((n for group in groups for n in group), key=order.__getitem__)
            return self.accepts(evolve(self.best, nodes=tuple(nodes)))

        left = ddmin([group for group in groups if group], fails)
        ddmin([[node] for group in left for node in group], fails)

    def fill(self) -> None:
        """Make values of a seed, all in one way if possible."""
        captured = self.best.captured
        for names in (captured, *([name] for name in captured)):
            if {*names} & {*self.best.captured}:
                made = ({**self.best.fills, **fills} for fills in self._fills(names))
                any(self.accepts(evolve(self.best, fills=fills)) for fills in made)

    def _fills(self, names: Sequence[str]) -> Iterator[dict[str, str]]:
        first = _FIRST if self.failure.kind == WRONG else ("ones", "normal")
        nodes = (node for node in self.best.tensors if node.name in names)
        known = {node.name: fills(self.best.captured_value(node)) for node in nodes}
        for fill in dict.fromkeys((*first, *_OTHERS)):
            # Those that have no such values are made in the usual way.
            usual = {name: "normal" if "normal" in own else "ones" for name, own in known.items()}
            yield {name: fill if fill in own else usual[name] for name, own in known.items()}

    def _shrink(self) -> None:
        """Put smaller sizes in place of larger ones, everywhere."""
        case = self.best
        recorded = [case.recording.calls[number] for number in case.calls]
        shapes = [call[node.name].shape for call in recorded for node in case.tensors]
        for size in sorted({size for shape in shapes for size in shape if size > 1}, reverse=True):
            known = self.best.sizes
            smaller = ({**known, size: s} for s in _SIZES if s < known.get(size, size))
            any(self.accepts(evolve(self.best, sizes=sizes)) for sizes in smaller)

    def _cast(self) -> None:
        """Put float32 in place of other floats."""
        dtypes = {self.best.captured_value(node).dtype for node in self.best.tensors}
        others = (dtype for dtype in dtypes if dtype.is_floating_point)
        for dtype in sorted({*others} - {torch.float32, *self.best.dtypes}, key=str):
            self.accepts(evolve(self.best, dtypes={**self.best.dtypes, dtype: torch.float32}))

    def _replace(self) -> None:
        """Put an input of a node in the place of its result, and read one value for several."""
        for node in (*reversed(self.best.nodes), *self.best.tensors[1:]):
            any(self.accepts(self.best.without(node, other)) for other in self._like(node))

    def _like(self, node: Any) -> list[Any]:
        """Return what may stand for a value: inputs of a node of several, or values read before."""
        case, given = self.best, self.best.tensors
        others = given[: given.index(node)] if node in given else []
        if node in case.nodes[1:]:
            others = node.all_input_nodes
        return [
            n for n in others if _kind(case.captured_value(n)) == _kind(case.captured_value(node))
        ]


def _kind(value: Any) -> tuple[Any, ...] | None:
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else None
