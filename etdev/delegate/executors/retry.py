"""Retry: an order that was lost with its worker, given to a fresh process that has no other."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as NoAnswerError

from attrs import define, field
from torch import Tensor

from etdev.delegate.compiler_calls import compile_error
from etdev.delegate.executors.processes import Processes
from etdev.delegate.executors.work import Order, Reply
from etdev.delegate.tasks import Task
from etdev.errors import first_line
from etdev.registry.watchdog import waiting_for

# What an order may take beyond the limit of its compiler: imports, transfers, its key.
GRACE_S = 60.0


class UnstartableError(Exception):
    """A process can't begin, which says nothing of the order."""


def patience_s(task: Task) -> float | None:
    """Seconds after which a worker that has not answered is lost; None for never."""
    return None if task.limit_s is None else task.limit_s + GRACE_S


@define(eq=False)
class Retry:
    """A process for lost orders, one after the other."""

    _process: Processes | None = field(default=None, init=False)

    @property
    def begun(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def reply(self, task: Task, order: Order, storages: list[tuple[int, Tensor]]) -> Reply:
        """What becomes of an order.

        Raises:
            CompileError: The process died of it, too, or gives no answer.
            UnstartableError: There is no process.
        """
        if self._process is None:
            self._process = Processes(1)
        try:
            self._process.check()
        except Exception as error:
            self.close()
            raise UnstartableError(first_line(error)) from error
        who, job, start = self._process.name, task.call.jobs[0], time.monotonic()
        try:
            with waiting_for(task.plugin.name, f"{task.call.what} in {who}, the second worker"):
                return self._process.submit(order, storages).result(patience_s(task))
        except NoAnswerError:
            self.close()
            what = f"no answer in {patience_s(task):g} s from {who}"
            raise compile_error(job, f"two workers froze, {what}") from TimeoutError(what)
        except Exception as error:  # Of the executor: what a backend raises is in the reply.
            self.close()
            # A process of ours ends itself where compiling takes longer than the limit.
            if task.limit_s is not None and time.monotonic() - start > task.limit_s:
                what = f"two processes were ended after {task.limit_s:g} s"
                raise compile_error(job, what) from TimeoutError(what)
            raise compile_error(job, f"two processes died of it, {first_line(error)}") from error

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None
