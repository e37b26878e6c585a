"""A working directory for each test, and the sources and files that the commands are given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from support.models import nets
from support.shell.sources import BROKEN

from etdev import Lowerer


class Two(torch.nn.Module):
    """Two outputs, as of the function `two`."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x * 2


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory for each test, so that messages hold short paths."""
    monkeypatch.chdir(tmp_path)
    # A file.py:function puts its folder there.
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def broken(here: Path) -> str:
    """A file with sound sources and broken ones."""
    (here / "broken.py").write_text(BROKEN)
    return "broken.py"


@pytest.fixture(scope="session")
def two_pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A portable program of two outputs."""
    lowered = Lowerer([]).lower(Two(), (torch.ones(3),))
    return lowered.save(tmp_path_factory.mktemp("two") / "two.pte")


@pytest.fixture(scope="session")
def pt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The MLP as torch.export.save writes it."""
    path = tmp_path_factory.mktemp("pt2") / "mlp.pt2"
    torch.export.save(torch.export.export(*nets.mlp()), path)
    return path
