"""Fixtures of the TensorRT plugin's tests."""

import pytest
from etdev_trt import machine
from etdev_trt.testing import library
from support.toys import torch_tensorrt as versions


@pytest.fixture(scope="module")
def torch_tensorrt():
    """torch-tensorrt's real Python over a fake of TensorRT."""
    if reason := versions.why_missing():
        pytest.skip(reason)
    with library.installed(versions.site()), pytest.MonkeyPatch.context() as patch:
        # The plugin would refuse one that requires another torch; its Python works all the same.
        patch.setattr(machine, "_misfit", lambda _: None)
        yield
