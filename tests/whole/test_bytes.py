"""Bytes: the models of the latency benchmark, lowered, for `digests` to compare."""

import pytest
import torch
from benchmarks import latency

from etdev import Lowerer

pytestmark = pytest.mark.matrix


@pytest.mark.parametrize("plugins", ["cpu", "composed"])
@pytest.mark.parametrize("name", latency.MODELS)
def test_a_model_is_emitted(name, plugins):
    module, inputs = latency.MODELS[name]()
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    lowered = Lowerer(["cpu"] if plugins == "cpu" else latency.composition()).lower(program)
    assert lowered.to_executorch().buffer
