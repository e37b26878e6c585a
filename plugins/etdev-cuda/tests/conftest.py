"""Fixtures of the CUDA plugin's tests."""

import pytest
from etdev_cuda.testing.aoti import FakeAoti


@pytest.fixture
def aoti():
    """A fake of AOTInductor under the real CudaBackend."""
    with FakeAoti().installed() as fake:
        yield fake
