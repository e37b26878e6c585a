"""A fake runtime for the fake accelerator: no runtime here loads delegates for a GPU.

It has the shape of a vendor's runtime for Python, and computes the sum of two inputs, which every
program has to be that is given to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from etdev.pte.read import read
from etdev.runtime.child import COMMAND, Child
from etdev.runtime.runners import PythonRunner


class Method:
    """A loaded method; its sums may be off by a constant."""

    def __init__(self, wrong: float) -> None:
        self.wrong = wrong

    def execute(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        x, y = inputs
        return [x + y + self.wrong]


class Program:
    def __init__(self, wrong: float) -> None:
        self.wrong = wrong

    def load_method(self, name: str) -> Method:
        return Method(self.wrong)


def load(source: Path, **options: Any) -> Program:
    (method,) = read(source).methods
    assert [delegate.backend_id for delegate in method.delegates] == ["FakeAccelerator"]
    return Program(0.0)


def load_wrongly(source: Path, **options: Any) -> Program:
    return Program(0.5)


def nothing_lacks(method: Any) -> tuple[list[str], list[str]]:
    return [], []


CHILD = Child("the fake runtime", command=(*COMMAND, "torch"))
RUNNER = PythonRunner("loader", load, CHILD, nothing_lacks)
WRONG = PythonRunner("wrong", load_wrongly, CHILD, nothing_lacks)
# It verifies beside Python, as a runtime does that loads whatever executorch.runtime loads.
BESIDE = PythonRunner("beside", verifies=True)
