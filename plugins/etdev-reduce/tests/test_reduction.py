"""Reductions of real failures: what is written fails by itself, in a fresh process."""

import re

import pytest
import torch
from etdev_reduce.flows import flows_of
from etdev_reduce.reduction import reduce
from torch import nn

from etdev.app import EagerMethod


class Products(nn.Module):
    """XNNPACK drops the factors of `addmm`; etdev refuses it that node."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)
        self.weight, self.bias = nn.Parameter(torch.randn(16, 16)), nn.Parameter(torch.randn(16))

    def forward(self, x):
        x = torch.addmm(self.bias, self.first(x).relu(), self.weight, beta=0.5, alpha=2)
        return self.last(x).softmax(-1)


@pytest.mark.suite
def test_a_wrong_product_becomes_a_script_of_plain_executorch(tmp_path):
    torch.manual_seed(0)
    methods = EagerMethod.of_model(Products().eval(), (torch.randn(4, 16),))
    flows = flows_of(None, {"plugins": ["cpu"], "cache": False})
    result = reduce(methods, flows)
    assert result.left == ["aten.addmm.default"]
    assert not result.flow.is_etdev
    assert (result.flows["etdev with cpu"], result.flows["portable kernels"]) == ("right", "right")
    path = result.write(tmp_path)
    text = path.read_text()
    assert path.name == "repro.py"
    assert not re.search(r"etdev|support|values\[", text)
    assert len(text.splitlines()) <= 60
    assert (
        "**Actual:** They differ: in call 0, output 0 is off by"
        in (tmp_path / "report.md").read_text()
    )
