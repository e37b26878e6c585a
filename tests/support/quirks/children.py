"""Child processes that judge repros: one on plain ExecuTorch, and one for each way into etdev."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from attrs import define, field

from support.quirks.verdict import Verdict

PLAIN, LOWERER, PARTITIONER = "plain", "lowerer", "partitioner"
WAYS = (PLAIN, LOWERER, PARTITIONER)
_MODULES = {PLAIN: "plain", LOWERER: "ours", PARTITIONER: "ours"}


@define(eq=False)
class Judge:
    """A process that judges one repro after the other; it starts with the first.

    Args:
        way: How they are lowered: `plain`, `lowerer` or `partitioner`.
    """

    way: str
    _process: subprocess.Popen[str] | None = field(default=None, init=False)

    def verdict(self, name: str) -> Verdict:
        """Judge one repro by its name."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{name}\n")
        process.stdin.flush()
        return Verdict(**json.loads(process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), *_given()]))
        command = [sys.executable, "-W", "ignore", "-m", f"support.quirks.{_MODULES[self.way]}"]
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path, "ETDEV_REPROS": self.way},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


def _given() -> list[str]:
    return [os.environ.get("PYTHONPATH", "")]
