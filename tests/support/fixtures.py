"""Fixtures of the host's tests and of the plugins': small .pte files, and a quick conversion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# The process that only hands out tests reads this file too, and needs no torch.
if TYPE_CHECKING:
    from etdev.lowered import Lowered


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that pretends that other versions are installed."""
    from etdev.schema import releases

    def versions(**known: str) -> None:
        real = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: known.get(name) or real(name))
        forget()

    def forget() -> None:
        for function in (releases.installed, releases.warn_of_untried, releases._tried):
            function.cache_clear()

    yield versions
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="session")
def mlp_lowered() -> Lowered:
    """The MLP: an XNNPACK delegate, layer norm, a delegate."""
    from etdev import Lowerer
    from support.models import nets

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


@pytest.fixture(scope="module")
def quick_conversion() -> Iterator[None]:
    """Convert with ExecuTorch's own functions as quickly as a `Lowerer` does, and to the same.

    It is for files that compare with them, or pass a partitioner to them.
    unit/upstream/test_upstream.py shows that programs stay the same, and the suites and the survey
    run without it.
    """
    from etdev.upstream.shortcuts.decompositions import quick_decompositions

    with quick_decompositions():
        yield
