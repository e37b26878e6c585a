"""Faults of XNNPACK's compiler, planted and known ones, found again in real models."""

from __future__ import annotations

import pytest
from etdev_reduce.reduction import reduce
from support import hidden
from support.models import decoders, minilm, nets

from etdev.app import EagerMethod

MODELS = {
    "U-Net block": (hidden.unet_block, "aten.add.Tensor"),
    "decoder step": (nets.cached_llama, "aten.add.Tensor"),
    "MobileNetV2": (nets.mobilenet, "aten.add.Tensor"),
    "MiniLM": (minilm.model, "aten.add.Tensor"),
    "BERT": (nets.bert, "aten.add.Tensor"),
    "Llama": (nets.llama, "aten.mul.Tensor"),
    "ResNet-18": (nets.resnet18, "aten.add.Tensor"),
    "attention": (decoders.attention, "aten.linear.default"),
    "conv net": (nets.conv_net, "aten.linear.default"),
    "MLP": (nets.mlp, "aten.linear.default"),
}

# Rows of the quirks table, and the models that they are hidden in.
ROWS = dict.fromkeys(("tanh-gelus", "factors-of-products", "kernel-sort"), "U-Net block")


@pytest.mark.suite
@pytest.mark.parametrize("row", ROWS)
def test_a_known_fault_is_found_in_a_real_model(row):
    result = hidden.found(row, ROWS[row])
    assert 1 <= len(result.case.computing) <= 5 < result.nodes
    assert result.case.captured == []


@pytest.mark.suite
@pytest.mark.parametrize("name", MODELS)
def test_an_op_that_a_compiler_gets_wrong_is_found(name, monkeypatch):
    make, op = MODELS[name]
    methods = EagerMethod.of_model(*make())
    graph = methods["forward"].program.graph
    nodes = [node for node in graph.nodes if str(node.target) == op]
    shape = [*nodes[len(nodes) // 2].meta["val"].shape]
    monkeypatch.setenv(hidden.PLANTED, f"{op.removesuffix('.default')}:{shape}")
    result = reduce(methods, [hidden.XNNPACK], modules=[hidden.__name__])
    assert [str(node.target) for node in result.case.computing] == [op]
