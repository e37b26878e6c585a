"""Worth: whether a worker of ours would be done with a call before this process is.

A worker has to import torch first, and then its backend's compiler is as slow as it was here in the
beginning. So this process goes by what it has compiled itself: it sends what would still wait here
when a worker is free, and compiles what a worker turns out to be too slow with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import define, field

from etdev.delegate.compiler_calls import Call
from etdev.delegate.executors.lanes import Lane
from etdev.delegate.executors.pace import Pace
from etdev.delegate.executors.processes import Processes

# Why a call stayed, or came back.
HERE = "no worker would have been done with it sooner"
# A worker that takes so many times what was expected is late.
_LATE = 2

# Calls that were sent and not answered, in their order, and when each was sent.
Sent = Sequence[tuple[Call, float]]


@define(eq=False)
class Worth:
    """What to send to processes of ours, and what to take back; any other lane gets everything.

    Args:
        pace: What calls take here.
    """

    pace: Pace = field(factory=Pace, init=False)
    _answers: int = field(default=0, init=False)
    _answered: float = field(default=0.0, init=False)
    # What sending the last call took this process.
    _sending_s: float = field(default=0.0, init=False)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Take note of what sending a call takes."""
        start = time.perf_counter()
        yield
        self._sending_s = time.perf_counter() - start

    def answered(self) -> None:
        """Take note of an answer."""
        self._answers += 1
        self._answered = time.perf_counter()

    def sends(self, waiting: Sequence[Call], sent: Sent, lane: Lane) -> bool:
        """Whether to send the first of the calls that wait."""
        if not isinstance(lane, Processes):
            return True
        if len(sent) >= lane.ready and self._answers < lane.ready:
            # How long a worker's first call takes isn't known yet.
            return False
        first, *rest = waiting
        own_s, rest_s = self.pace.seconds(first), self.pace.total(rest)
        busy_s = self._busy_s(sent, lane)
        if own_s is None or rest_s is None or busy_s is None:
            # It may take minutes, so no worker shall be idle, nor this process.
            return bool(rest)
        return own_s > self._sending_s and busy_s < rest_s

    def stays(self, call: Call, sent: Sent, lane: Lane) -> str:
        """Why no worker has a call that this process is about to compile; empty if none could."""
        free = isinstance(lane, Processes) and len(sent) < lane.limit
        return HERE if free and self.pace.seconds(call) is not None else ""

    def late(self, sent: Sent, lane: Lane) -> int | None:
        """The number of a call that this process would be done with sooner; None without one."""
        for number, (call, _) in reversed(list(enumerate(sent))):
            own_s, busy_s = self.pace.seconds(call), self._busy_s(sent[: number + 1], lane)
            if own_s is None or busy_s is None:
                continue
            if own_s < busy_s or not self._patience_s(sent[: number + 1], lane):
                return number
        return None

    def patience_s(self, sent: Sent, lane: Lane) -> float | None:
        """Seconds until a call is late; None if that isn't known of any."""
        times = [self._patience_s(sent[: number + 1], lane) for number in range(len(sent))]
        return min((seconds for seconds in times if seconds is not None), default=None)

    def _patience_s(self, sent: Sent, lane: Lane) -> float | None:
        needed_s, spent_s = self._progress(sent, lane)
        return None if needed_s is None else max(_LATE * needed_s - spent_s, 0.0)

    def _busy_s(self, sent: Sent, lane: Lane) -> float | None:
        """Seconds until the workers are done with some calls; None if that isn't known."""
        needed_s, spent_s = self._progress(sent, lane)
        return None if needed_s is None else max(needed_s - spent_s, 0.0)

    def _progress(self, sent: Sent, lane: Lane) -> tuple[float | None, float]:
        """What the workers need for some calls, and what they have spent on them, in seconds."""
        work_s = self.pace.total([call for call, _ in sent])
        if work_s is None or not isinstance(lane, Processes):
            return None, 0.0
        spent_s = time.perf_counter() - max(sent[0][1], self._answered) if sent else 0.0
        # The first call of a fresh process takes about as long again as its imports did.
        cold_s = lane.begins_s if self._answers < lane.ready else 0.0
        return cold_s + work_s / max(lane.ready, 1), spent_s
