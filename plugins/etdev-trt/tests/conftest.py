"""Fixtures of the TensorRT plugin's tests."""

import pytest
from etdev_trt import machine
from toys.tensorrt import library


@pytest.fixture(scope="module")
def torch_tensorrt(tmp_path_factory):
    """torch-tensorrt's real Python over a fake of TensorRT."""
    if reason := library.why_missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("libnvinfer")
    with library.installed(folder), pytest.MonkeyPatch.context() as patch:
        # The plugin would refuse one that requires another torch; its Python works all the same.
        patch.setattr(machine, "_misfit", lambda _: None)
        yield
