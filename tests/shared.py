"""Small .pte files that tests of the host and of plugins read, and none writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# The process that only hands out tests reads this file too, and needs no torch.
if TYPE_CHECKING:
    from etdev.lowering.lowered import Lowered


@pytest.fixture(scope="session")
def mlp_lowered() -> Lowered:
    """The MLP: an XNNPACK delegate, layer norm, a delegate."""
    from models import nets

    from etdev import Lowerer

    return Lowerer(["cpu"]).lower(*nets.mlp())


@pytest.fixture(scope="session")
def mlp_pte(mlp_lowered: Lowered, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file."""
    return mlp_lowered.save(tmp_path_factory.mktemp("mlp") / "mlp.pte")


@pytest.fixture(scope="session")
def dynamic_pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A portable ReLU of up to 8 rows of 4 numbers."""
    import torch

    from etdev import Lowerer

    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},)
    lowered = Lowerer([]).lower(torch.nn.ReLU(), (torch.ones(3, 4),), dynamic_shapes=shapes)
    return lowered.save(tmp_path_factory.mktemp("dynamic") / "dynamic.pte")
