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
from etdev_reduce.case import Case
from etdev_reduce.failure import HANG, INVALID, WRONG, Failure
from etdev_reduce.flows import PORTABLE, Flow
from etdev_reduce.worker import Trial

T = TypeVar("T")
# Sizes that are tried in place of larger ones.
_SIZES = (1, 2, 3, 4, 8, 16, 32)
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
            trial = Trial(source, values, flow, self.tolerance, self.slow)
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
        file = self.folder / f"{id(case.recording)}.pt"
        if not file.exists():
            torch.save(case.recording.values(), file)
        return str(file)

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
            self._bypass()
            self._merge()

    def _call(self) -> None:
        """Leave out calls, and then sizes that vary."""
        if len(self.best.calls) > 1:
            ddmin(
                self.best.calls, lambda calls: self.accepts(evolve(self.best, calls=tuple(calls)))
            )
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
        first = (
            ("normal", "positive", "scaled") if self.failure.kind == WRONG else ("ones", "normal")
        )
        others = ("ties", "levels", "edges", "normal", "scaled", "positive", "ones", "zeros")
        order = list(dict.fromkeys((*first, *others)))
        if not self.best.captured:
            return
        for fill in order:
            fills = {**self.best.fills, **self._fills(self.best, self.best.captured, fill)}
            if self.accepts(evolve(self.best, fills=fills)):
                break
        for name in self.best.captured:
            for fill in order:
                made = self._fills(self.best, [name], fill)
                if made and self.accepts(evolve(self.best, fills={**self.best.fills, **made})):
                    break

    def _fills(self, case: Case, names: Sequence[str], fill: str) -> dict[str, str]:
        nodes = {node.name: node for node in case.tensors}
        known = {name: case.value(nodes[name], case.calls[0]).fills() for name in names}
        # Those that have no such values are made in the usual way.
        return {
            name: fill if fill in fills else "normal" if "normal" in fills else "ones"
            for name, fills in known.items()
            if fill in fills or len(names) > 1
        }

    def _shrink(self) -> None:
        """Put smaller sizes in place of larger ones, everywhere."""
        case = self.best
        shapes = [case.value(n, c).captured.shape for n in case.tensors for c in case.calls]
        for size in sorted({size for shape in shapes for size in shape if size > 1}, reverse=True):
            now = case.sizes.get(size, size)
            for smaller in (s for s in _SIZES if s < now):
                if self.accepts(evolve(self.best, sizes={**self.best.sizes, size: smaller})):
                    break

    def _cast(self) -> None:
        """Put float32 in place of other floats."""
        captured = (self.best.value(n, self.best.calls[0]).captured for n in self.best.tensors)
        dtypes = {value.dtype for value in captured if value.is_floating_point()}
        for dtype in sorted(dtypes - {torch.float32, *self.best.dtypes}, key=str):
            self.accepts(evolve(self.best, dtypes={**self.best.dtypes, dtype: torch.float32}))

    def _bypass(self) -> None:
        """Put an input of a node in the place of its result."""
        for node in reversed(self.best.nodes):
            if node in self.best.nodes and len(self.best.nodes) > 1:
                any(self.accepts(self.best.without(node, own)) for own in _like(node))

    def _merge(self) -> None:
        """Read one value in place of several like it."""
        for node in self.best.tensors[1:]:
            earlier = self._same_kind(node)
            any(self.accepts(self.best.without(node, other)) for other in earlier)

    def _same_kind(self, node: Any) -> Iterator[Any]:
        case, constants = self.best, self.best.recording.constants
        value = case.value(node, case.calls[0]).captured
        for other in case.tensors[: case.tensors.index(node)]:
            known = case.value(other, case.calls[0]).captured
            same = (known.shape, known.dtype) == (value.shape, value.dtype)
            if same and (other.name in constants) == (node.name in constants):
                yield other


def _like(node: Any) -> list[Any]:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return []
    found = []
    for own in node.all_input_nodes:
        other = own.meta.get("val")
        if isinstance(other, torch.Tensor) and (other.shape, other.dtype) == (
            value.shape,
            value.dtype,
        ):
            found.append(own)
    return found
