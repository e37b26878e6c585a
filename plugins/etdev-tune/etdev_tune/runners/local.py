"""This machine as a target."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from etdev_tune.runners.command import WORDS, Command
from etdev_tune.runners.target import Target


class Local(Target):
    """Runs programs in processes of this machine, with this Python and its libraries of kernels."""

    def __init__(self) -> None:
        path = os.pathsep.join(folder for folder in sys.path if folder)
        environment = {**os.environ, "PYTHONPATH": path}
        super().__init__(Command("local", (WORDS,), sys.executable, "local", environment))

    def _placed(self, file: Path) -> str:
        return str(file.absolute())

    def _libraries(self) -> Sequence[str]:
        return sorted(torch.ops.loaded_libraries)
