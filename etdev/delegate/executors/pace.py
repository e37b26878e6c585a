"""Pace: what calls of backends take in this process, by what it has compiled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from attrs import define, field
from executorch.exir.backend.backend_details import BackendDetails

from etdev.delegate.compiler_calls import Call


@define(eq=False)
class Pace:
    """What calls take, in seconds.

    Calls are alike that have the same ops on values of the same shapes; a backend may compile the
    second of a kind in a fraction of the time.
    """

    _kinds: dict[Call, Hashable] = field(factory=dict)
    _least: dict[Hashable, float] = field(factory=dict)
    # Seconds a node takes in a call that is the first of its kind.
    _rates: dict[type[BackendDetails], float] = field(factory=dict)

    def note(self, call: Call, seconds: float) -> None:
        """Take note of what a call took."""
        kind = self.kind(call)
        if kind not in self._least:
            rate = seconds / max(_size(call), 1)
            self._rates[call.backend] = min(rate, self._rates.get(call.backend, rate))
        self._least[kind] = min(seconds, self._least.get(kind, seconds))

    def seconds(self, call: Call) -> float | None:
        """What a call will take; None if nothing of its backend has been compiled."""
        known, rate = self._least.get(self.kind(call)), self._rates.get(call.backend)
        return known if known is not None or rate is None else rate * _size(call)

    def total(self, calls: Sequence[Call]) -> float | None:
        """What some calls will take together; None if that isn't known."""
        seconds = [self.seconds(call) for call in calls]
        return None if None in seconds else sum(s for s in seconds if s is not None)

    def kind(self, call: Call) -> Hashable:
        """Equal for calls that are alike."""
        if call not in self._kinds:
            nodes = [node for job in call.jobs for node in job.program.graph.nodes]
            ops = tuple((str(node.target), _shape(node)) for node in nodes if node.args)
            self._kinds[call] = (call.backend, ops)
        return self._kinds[call]

    def order(self, calls: Sequence[Call]) -> Callable[[Call], tuple[int, int]]:
        """How to sort calls: large ones first, and those that are alike together."""
        first: dict[Hashable, int] = {}
        for number, call in enumerate(calls):
            first.setdefault(self.kind(call), number)
        return lambda call: (-_size(call), first[self.kind(call)])


def _size(call: Call) -> int:
    return sum(len(job.partition.nodes) for job in call.jobs)


def _shape(node: Any) -> str:
    value = node.meta.get("val")
    return f"{getattr(value, 'dtype', '')} {tuple(getattr(value, 'shape', ()))}"
