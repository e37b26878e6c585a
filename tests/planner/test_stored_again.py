"""Weights that a .pte stores more than once are said with their bytes."""

from __future__ import annotations

import pytest
import torch
from models.matrix import SMALL, Tied
from torch import nn

from etdev import Lowerer
from etdev.pte.read import read
from etdev.schema.plan import Plan
from etdev.schema.tensors import repeats


def occurrences(path, values):
    """Return how often the bytes of each value are in a file."""
    data = path.read_bytes()
    return {name: data.count(value.detach().numpy().tobytes()) for name, value in values.items()}


def test_a_weight_of_a_delegate_and_a_kernel_is_stored_again(tmp_path):
    net = Tied().eval()
    lowered = Lowerer(["cpu"]).lower(net, (torch.arange(4).reshape(1, 4),))
    plan = lowered.plan
    (weight,) = plan.stored_again
    assert (weight.targets, weight.holders) == (
        {"forward": ("embedding.weight",)},
        ("cpu", "portable"),
    )
    bytes_again = net.embedding.weight.nbytes
    line = (
        "methods forward: embedding.weight stored 2 times (cpu 1, portable 1), "
        f"{bytes_again} bytes again"
    )
    assert list(repeats(plan.stored_again)) == [line]
    assert plan.summary.endswith(f"; {line}")
    assert line in str(plan.__rich__().renderables[-1].rows)
    assert Plan.from_json(plan.to_json()) == plan
    assert occurrences(lowered.save(tmp_path / "net.pte"), dict(net.named_parameters())) == {
        "embedding.weight": 2,
        "norm.weight": 1,
        "norm.bias": 1,
    }


class Layer(nn.Module):
    """A method of a layer that it shares with another method."""

    def __init__(self, layer, factor):
        super().__init__()
        self.layer, self.factor = layer, factor

    def forward(self, x):
        return self.layer(x) * self.factor


def shared_layer():
    layer, x = nn.Linear(64, 64), torch.ones(2, 64)
    return layer, {name: (Layer(layer, f), (x,)) for name, f in {"one": 2.0, "two": 3.0}.items()}


@pytest.mark.parametrize("order", [[], ["cpu"]], ids=["portable", "cpu"])
def test_methods_whose_backend_shares_weights_store_each_once(order, tmp_path):
    layer, methods = shared_layer()
    lowered = Lowerer(order).lower(methods)
    found = occurrences(lowered.save(tmp_path / "net.pte"), dict(layer.named_parameters()))
    assert set(found.values()) == {1}
    assert lowered.plan.stored_again == ()


def test_methods_whose_backend_shares_none_store_each_again(tmp_path):
    pytest.importorskip("openvino", reason="openvino is not installed")
    layer, methods = shared_layer()
    lowered = Lowerer(["openvino"]).lower(methods)
    targets = {"layer.weight", "layer.bias"}
    assert {weight.targets["one"][0] for weight in lowered.plan.stored_again} == targets
    for weight in lowered.plan.stored_again:
        assert (set(weight.targets), weight.holders) == ({"one", "two"}, ("openvino",) * 2)
    # OpenVINO packs weights in its own way.
    for method in read(lowered.save(tmp_path / "net.pte")).methods:
        assert sum(d.size_bytes for d in method.delegates) > layer.weight.nbytes


def test_a_weight_in_one_place_is_none():
    for order in ([], ["cpu"]):
        plan = Lowerer(order).plan(dict(SMALL["mlp"]().programs))
        assert (plan.stored_again, "stored_again" in plan.to_dict()) == ((), False)
