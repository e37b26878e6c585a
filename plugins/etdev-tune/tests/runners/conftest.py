"""A target behind ssh."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.ssh import _server, ssh

__all__ = ["_server", "ssh"]


@pytest.fixture
def interruptible() -> None:
    """Skip a test that interrupts itself where OpenVINO makes a signal end the process."""
    if "libopenvino" in Path("/proc/self/maps").read_text():
        pytest.skip("OpenVINO's CPU device left an unmapped signal stack, so a signal is a crash")
