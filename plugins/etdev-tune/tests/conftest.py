"""A working directory for the tests of the command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, so that messages hold short paths."""
    monkeypatch.chdir(tmp_path)
    # A file.py:function puts its folder there.
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path
