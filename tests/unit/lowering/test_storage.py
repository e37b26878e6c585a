"""Weights that a .pte stores more than once, and plugins that make it larger, are said."""

from __future__ import annotations

import pytest
import torch
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from support.models.matrix import SMALL, Tied
from torch import nn

from etdev import Lowerer
from etdev.pte.read import read
from etdev.schema.plan import Plan
from etdev.schema.tensors import repeats
from etdev.testing.fakes import Accelerator


def occurrences(path, values):
    """Return how often the bytes of each value are in a file."""
    data = path.read_bytes()
    return {name: data.count(value.detach().numpy().tobytes()) for name, value in values.items()}


def test_a_weight_of_a_delegate_and_a_kernel_is_stored_again(tmp_path):
    net = Tied().eval()
    # Of less than 4 KiB; larger ones are shared, see unit/pte/test_deduplication.py.
    net.embedding = nn.Embedding(16, 32)
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


class Packing(BackendDetails):
    """A backend that keeps weights in their own dtype."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        values = [*edge_program.state_dict.values(), *edge_program.constants.values()]
        return PreprocessResult(processed_bytes=b"".join(v.numpy().tobytes() for v in values))


class Dequantising(BackendDetails):
    """A backend that keeps quantised weights as floats."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        values = [*edge_program.state_dict.values(), *edge_program.constants.values()]
        floats = b"".join(v.float().numpy().tobytes() for v in values)
        return PreprocessResult(processed_bytes=floats)


class Quantised(nn.Module):
    """A product with a weight of 8 bits."""

    def __init__(self, scale=0.5):
        super().__init__()
        self.scale = scale
        self.register_buffer("weight", torch.ones(512, 512, dtype=torch.int8))

    def forward(self, x):
        return x @ (self.weight.to(x.dtype) * self.scale)


def lowered_by(backend, modules):
    methods = {name: (module, (torch.ones(2, 512),)) for name, module in modules.items()}
    plugin = Accelerator("own", backend=backend.__name__)
    return Lowerer([plugin], simplify=False).lower(methods)


def test_a_plugin_that_dequantises_weights_makes_the_file_larger(tmp_path):
    lowered, honest = (lowered_by(b, {"forward": Quantised()}) for b in (Dequantising, Packing))
    (growth,) = lowered.plan.growths
    size = (growth.size_bytes, growth.weights_bytes)
    assert size[1] >= 512 * 512
    line = (
        f"own adds about {size[0] - size[1]} bytes: its delegates have {size[0]} bytes for "
        f"{size[1]} bytes of weights that only they store; leave out own, or pin large layers to "
        "another plugin"
    )
    assert lowered.plan.summary.endswith(f"; {line}")
    assert line in str(lowered.plan.__rich__().renderables[-1].rows)
    assert Plan.from_json(lowered.plan.to_json()) == lowered.plan
    assert (honest.plan.growths, "growths" in honest.plan.to_dict()) == ((), False)
    bytes_of = {each: each.save(tmp_path / "net.pte").stat().st_size for each in (lowered, honest)}
    assert abs(bytes_of[lowered] - bytes_of[honest] - growth.more_bytes) < 1000


def test_a_plugin_that_stores_a_weight_for_each_method_makes_the_file_larger():
    one = Quantised()
    two = Quantised(0.25)
    two.weight = one.weight
    (growth,) = lowered_by(Packing, {"one": one, "two": two}).plan.growths
    assert growth.more_bytes >= one.weight.nbytes
    assert lowered_by(Packing, {"one": one, "two": Quantised()}).plan.growths == ()


def test_a_plugin_that_shares_weights_makes_no_file_larger():
    layer = nn.Linear(256, 256)
    methods = {name: (Layer(layer, f), (torch.ones(2, 256),)) for name, f in (("a", 2), ("b", 3))}
    assert Lowerer(["cpu"]).lower(methods).plan.growths == ()
