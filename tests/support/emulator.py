"""An emulated aarch64: its target, and a mark for tests that need the compiler and the emulator."""

from __future__ import annotations

import shutil

import pytest

from etdev.schema.target import Target

PI = Target("aarch64-linux-gnu")
_LACKING = [tool for tool in (f"{PI.triple}-g++", "qemu-aarch64") if not shutil.which(tool)]
emulated = pytest.mark.skipif(
    bool(_LACKING),
    reason=f"not installed: {', '.join(_LACKING)}; apt install g++-aarch64-linux-gnu qemu-user",
)
