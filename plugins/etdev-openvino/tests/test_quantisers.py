"""Fake quantisers beside layers that OpenVINO does not take."""

import pytest
import torch
from support.quirks.quantised import pt2e
from support.toys.runtime import assert_agrees
from torch import nn

from etdev import Lowerer

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino.plugin import OpenVinoPlugin


class Residual(nn.Module):
    """Two layers read one value, and so do two dequantisers of it."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 1)

    def forward(self, x):
        return nn.functional.hardtanh(self.one(x)) + self.two(x)


@pytest.mark.suite
def test_quantisers_go_with_the_layers_that_are_left_to_others():
    """Alone, they can't be compiled, and XNNPACK could no longer take the layers in 8 bits."""
    inputs = (torch.randn(1, 3, 8, 8),)
    module = pt2e(Residual(), *inputs)
    lowered = Lowerer([OpenVinoPlugin(precision="f32"), "cpu"]).lower(module, inputs)
    plan = lowered.plan["forward"]
    assert plan.owner("aten_convolution_default") == plan.owner("aten_convolution_default_1")
    assert plan.owner("aten_convolution_default") == "cpu"
    # The activation before a quantiser belongs to the layer.
    assert plan.owner("aten_hardtanh_default") == "cpu"
    assert_agrees(lowered, module, inputs, tolerance=0.05)
