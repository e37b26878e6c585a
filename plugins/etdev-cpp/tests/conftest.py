"""Tests of C++ are skipped where there is no compiler, or no ExecuTorch to compile against."""

from __future__ import annotations

import pytest
from etdev_cpp import build
from etdev_cpp.wheel import Wheel

from etdev.errors import RunError


@pytest.fixture(scope="session")
def compiles() -> None:
    """Skip what can't be compiled on this machine."""
    try:
        build.Compiler.here()
        Wheel.here()
    except RunError as error:
        pytest.skip(str(error))
