"""One run of a program, in a process that has run nothing else."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from etdev_tune.process.facts import count_memory, peak_bytes, use_threads

_LONG_NS = 10**9


class Work:
    """A run of a program.

    Its order has the fields of a `Request`, with paths as text, and `imports` and `libraries`,
    which bring kernels.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self._programs: list[Any] = []

    def result(self) -> dict[str, Any]:
        """Run the program here; return the fields of a `Result`."""
        order = self.order
        use_threads(order["threads"])
        for name in order["imports"]:
            import_module(name)
        for library in order["libraries"]:
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
        sets = order["inputs"]
        before = count_memory()
        warm = method = self._method()
        outputs = [copied(method.execute(inputs)) for inputs in sets] if order["outputs"] else []
        timed = [order["timed"] is None or i in order["timed"] for i in range(len(sets))]
        changed = [self._warms_up(warm, sets[i]) for i, own in enumerate(timed) if own]
        # While the program is in memory once.
        memory = peak_bytes(before)
        if any(changed):
            method = self._method()
        times = []
        for inputs, own in zip(sets, timed, strict=True):
            if own and any(changed):
                # After a pause, threads would be asleep again.
                self._warms_up(warm, inputs)
            times.append(tuple(self._timed(method, inputs)) if own else ())
        return {
            "times_ns": tuple(times),
            "outputs": tuple(outputs),
            "memory_bytes": memory if any(changed) else peak_bytes(before),
        }

    def _warms_up(self, method: Any, inputs: Any) -> bool:
        """Call a method until threads, caches and the processor's clock are warmed up.

        Return True if the calls may have changed its state in a way that the timed calls can't.
        """
        end = time.perf_counter_ns() + int(self.order["warmup_s"] * 1e9)
        calls = 0
        while time.perf_counter_ns() < end:
            try:
                method.execute(inputs)
            except Exception:  # Its state may not allow that many; other errors come again.
                return True
            calls += 1
        return calls > int(self.order["warmup"])

    def _timed(self, method: Any, inputs: Any) -> list[int]:
        order = self.order
        limit = int(order["seconds"] * 1e9)
        end = time.perf_counter_ns() + limit
        for _ in range(order["warmup"]):
            method.execute(inputs)
            if time.perf_counter_ns() > end:
                break
        times: list[int] = []
        end = time.perf_counter_ns() + limit
        while len(times) < order["repetitions"]:
            start = time.perf_counter_ns()
            # One call of that length is enough.
            if start > end and (len(times) >= 3 or max(times, default=0) > _LONG_NS):
                break
            method.execute(inputs)
            times.append(time.perf_counter_ns() - start)
        return times

    def _method(self) -> Any:
        """Return the method in its initial state."""
        load = import_module("executorch.runtime").Runtime.get().load_program
        data = [Path(name) for name in self.order["data"]]
        if len(data) > 1:
            raise RuntimeError("ExecuTorch takes one .ptd from Python")
        # Before 1.5, ExecuTorch takes none from Python, and refuses the argument.
        more = {"data_path": data[0]} if data else {}
        # The method reads its program's bytes as long as it lives.
        self._programs.append(load(Path(self.order["program"]), **more))
        return self._programs[-1].load_method(self.order["method"])


def copied(outputs: Any) -> tuple[Any, ...]:
    """Copy outputs, since the method's next call overwrites them."""
    return tuple(item.clone() if hasattr(item, "clone") else item for item in outputs)
