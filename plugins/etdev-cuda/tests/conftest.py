"""Fixtures of the CUDA plugin's tests."""

import pytest
from toys.aoti import FakeAoti


@pytest.fixture
def aoti(monkeypatch):
    """A fake of AOTInductor under the real CudaBackend."""
    return FakeAoti().install(monkeypatch)
