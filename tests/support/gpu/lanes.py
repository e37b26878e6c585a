"""Lanes: files of tests, and the environment that they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

ROOT = Path(__file__).parents[3]
# PyTorch's own index has the wheels of ExecuTorch with CudaBackend; TensorRT's are NVIDIA's.
CUDA_WHEELS = "https://download.pytorch.org/whl/cu130"
NVIDIA = "https://pypi.nvidia.com"
ETDEV = ("-e", ".[demo]", "-e", "plugins/etdev-cuda[compile]", "-e", "plugins/etdev-cpu", "pytest")
TRT = ("-e", "plugins/etdev-trt")


@frozen
class Lane:
    """Tests that need the same environment.

    Args:
        name: Its name.
        about: What the tests show, in one line.
        files: The files of tests; each runs in a process of its own, since a process takes one
            runtime only.
        imports: What the tests import, in this order, beside torch with CUDA.
        install: Arguments of each call of `pip install` that makes the environment; none if the
            Python that runs the lanes has all that it takes, or names it with ETDEV_GPU_PYTHON.
        backend: A backend that `executorch.runtime` has to have.
    """

    name: str
    about: str
    files: tuple[str, ...]
    imports: tuple[str, ...]
    install: tuple[tuple[str, ...], ...] = ()
    backend: str | None = None

    @property
    def environment(self) -> Path:
        """The folder of its environment."""
        return ROOT / f".venv-gpu-{self.name}"

    @property
    def python(self) -> Path:
        """Its Python."""
        if not self.install:
            return Path(os.environ.get("ETDEV_GPU_PYTHON", sys.executable))
        return self.environment / "bin" / "python"

    def make(self) -> str | None:
        """Make its environment, if there is none yet; return why that failed."""
        done = self.environment / "made"
        if not self.install or done.exists():
            return None
        calls = [[sys.executable, "-m", "venv", str(self.environment)]]
        pip = [str(self.python), "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        calls += [[*pip, "--no-compile", *arguments] for arguments in self.install]
        for call in calls:
            made = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
            if made.returncode:
                line = (made.stderr.strip() or made.stdout.strip()).splitlines()[-1]
                return f"its environment can't be made: {line}"
        done.touch()
        return None

    def ask(self, question: str, *arguments: str) -> Any:
        """Ask a process of its environment, see `session`; return the answer.

        Raises:
            RuntimeError: The process died, in the last line of what it printed.
        """
        path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [str(self.python), "-m", "support.gpu.session", question, self.name, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        answer = done.stdout.rpartition("\n")[-1]
        if done.returncode or not answer:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
            raise RuntimeError(f"{question} ended with {done.returncode}: {lines[-1]}")
        return json.loads(answer)

    def plan(self, device: str = "cuda") -> dict[str, Any]:
        """Return the tests of this lane, and why they would be skipped, without a GPU, too.

        Args:
            device: `cuda`, or `cpu` for the same tests on the CPU, where a lane has them.

        Returns:
            `skip`: the first thing that the environment lacks, None if the tests would run where
            a GPU is; `tests`: their names.
        """
        if not self.python.exists():
            return {"skip": "its environment is not made; make gpu makes it", "tests": []}
        try:
            planned: dict[str, Any] = self.ask("plan", device)
        except RuntimeError as error:
            return {"skip": str(error), "tests": []}
        return planned

    def run(self, device: str = "cuda") -> dict[str, Any]:
        """Run the tests, each file in a process of its own; return the outcomes by name."""
        outcomes: dict[str, Any] = {}
        for file in self.files:
            try:
                outcomes |= self.ask("run", device, file)
            except RuntimeError as error:
                outcomes[file] = {"outcome": "failed", "reason": str(error)}
        return outcomes


_CUDA = "plugins/etdev-cuda/tests"
LANES: Sequence[Lane] = (
    Lane(
        "torch",
        "AOTInductor's libraries for the GPU, called through torch, beside eager PyTorch",
        (f"{_CUDA}/test_cuda_values.py",),
        ("triton", "executorch.backends.cuda.cuda_partitioner", "etdev_cuda.testing.compiled"),
    ),
    Lane(
        "executorch",
        "files run by the CudaBackend of ExecuTorch's CUDA wheel",
        (f"{_CUDA}/test_cuda_gpu.py",),
        ("triton", "executorch.backends.cuda.cuda_partitioner", "executorch.runtime"),
        (("torch==2.13.0", "executorch==1.5.1", "--index-url", CUDA_WHEELS), ETDEV),
        backend="CudaBackend",
    ),
    Lane(
        "tensorrt",
        "engines and CUDA delegates run by torch-tensorrt's build of ExecuTorch's runtime",
        ("plugins/etdev-trt/tests/test_gpu.py", f"{_CUDA}/test_cuda_gpu.py"),
        (
            *("triton", "executorch.backends.cuda.cuda_partitioner", "tensorrt"),
            *("torch_tensorrt.executorch.backend", "torch_tensorrt_executorch_runtime"),
        ),
        (
            ("torch==2.14.1", "executorch==1.4.1"),
            (*ETDEV, "-e", "plugins/etdev-trt[tensorrt,runtime]", "--extra-index-url", NVIDIA),
        ),
    ),
)
BY_NAME = {lane.name: lane for lane in LANES}
