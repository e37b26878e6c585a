"""The worker: runs .pte files in a process of its own, which the runtime may take down with it.

`python -m etdev.runtime.worker` reads a folder a line, runs the jobs of FOLDER/jobs.pt, and answers
with a line. After each call it writes JOB-CALL.pt, and JOB.txt for a job that the runtime refused;
what ExecuTorch logs goes to JOB.log. It ends with its input.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from etdev.runtime.loading import load_runtime
from etdev.upstream.versions import load_program


def main() -> None:
    """Answer every folder."""
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # While the other process is busy with something else.
    load_runtime()

    for line in sys.stdin:
        work(Path(line.rstrip("\n")))
        answers.write("done\n")
        answers.flush()


def work(folder: Path) -> None:
    """Run all jobs of a folder, those after a refused one too."""
    import torch

    jobs = torch.load(folder / "jobs.pt", weights_only=True)
    for library in jobs["libraries"]:
        torch.ops.load_library(library)  # type: ignore[no-untyped-call]
    for index, job in jobs["jobs"].items():
        # The runtime logs from C++ to the file descriptor.
        log = os.open(folder / f"{index}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 2)
        os.close(log)
        try:
            _run(folder, index, job)
        except Exception as error:
            (folder / f"{index}.txt").write_text(f"{type(error).__name__}: {error}", "utf-8")


def _run(folder: Path, index: int, job: dict[str, Any]) -> None:
    import torch

    program = load_program(Path(job["path"]), Path(job["data"]) if job["data"] else None)
    method = program.load_method(job["method"])
    for call, inputs in enumerate(job["calls"]):
        outputs, times = method.execute(inputs), []
        for _ in range(job["repeat"]):
            start = time.perf_counter()
            outputs = method.execute(inputs)
            times.append((time.perf_counter() - start) * 1000)
        left = {"outputs": list(outputs), "inputs": inputs, "latency_ms": times}
        torch.save(left, folder / f"{index}-{call}.pt")


if __name__ == "__main__":
    main()
