"""The four plugins of this repository keep to the contract, as far as each can run here."""

import pytest
from etdev_cpu.plugin import CpuPlugin
from etdev_cuda.plugin import CudaPlugin
from etdev_openvino.plugin import OpenVinoPlugin
from etdev_trt.plugin import TrtPlugin

from etdev.registry import answers
from etdev.registry.selection import from_object
from etdev.testing import Requirements
from etdev.testing.conformance import PluginConformance


class TestCpu(PluginConformance):
    def make(self):
        return CpuPlugin()


@pytest.mark.skipif(
    answers.probe(from_object(OpenVinoPlugin())).unfit is not None, reason="needs openvino and nncf"
)
class TestOpenVino(PluginConformance):
    # It rounds products to bfloat16 on CPUs that have it, and numbers nodes through the process.
    requirements = Requirements(tolerance=1e-2, same_bytes=False)

    def make(self):
        return OpenVinoPlugin()


class TestCuda(PluginConformance):
    def make(self):
        return CudaPlugin()


class TestTrt(PluginConformance):
    # It looks for engines and says nothing of other nodes.
    requirements = Requirements(reasons=False)

    def make(self):
        return TrtPlugin()
