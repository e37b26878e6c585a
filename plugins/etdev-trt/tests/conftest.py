"""Fixtures of the TensorRT plugin's tests."""

import fake_tensorrt
import pytest
from etdev_trt import installation


@pytest.fixture(scope="module")
def torch_tensorrt(tmp_path_factory):
    """torch-tensorrt's real Python over a fake of TensorRT."""
    if reason := fake_tensorrt.why_missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("libnvinfer")
    with fake_tensorrt.installed(folder), pytest.MonkeyPatch.context() as patch:
        # Another version than this torch's is refused, and its Python runs all the same.
        patch.setattr(installation, "_misfit", lambda _: None)
        yield
