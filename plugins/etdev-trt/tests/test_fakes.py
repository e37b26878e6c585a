"""The fakes ask for what they stand in for only when they are used."""

import subprocess
import sys

import pytest
from etdev_trt.testing import library

IMPORTS = """
import sys
import etdev_cuda.testing.aoti, etdev.testing.fakes
import etdev_trt.testing.builder, etdev_trt.testing.library, etdev_trt.testing.programs
missing = ["torch_tensorrt", "tensorrt", "pytest", "executorch.backends.cuda"]
print([name for name in missing if name in sys.modules])
"""


@pytest.mark.suite
def test_importing_them_imports_nothing_of_the_vendors_nor_of_pytest():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_missing_torch_tensorrt_is_named_with_the_cure(tmp_path):
    with (
        pytest.raises(ModuleNotFoundError) as caught,
        library.installed(tmp_path),
    ):
        pass
    assert str(caught.value) == (
        f"torch-tensorrt is not in {tmp_path}; pip install --no-deps torch-tensorrt"
    )
