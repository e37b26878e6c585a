"""Kinds of model through the real CudaBackend and AOTInductor, called through torch.

On the CPU as `make test` does, and on a GPU by `make gpu`. They need nothing but torch: neither
ExecuTorch's runtime nor other models.
"""

import copy

import pytest
import torch
from etdev_cuda import machine
from etdev_cuda.testing import compiled
from support.models import decoders
from support.quirks import model
from support.toys.aoti import NEEDS_1_5
from torch import nn

from etdev import Lowerer
from etdev.upstream.trees import flat
from etdev.verify.output_error import compare

pytestmark = NEEDS_1_5

UNFIT = machine.probe().unfit
ON_GPU = pytest.mark.gpu, pytest.mark.skipif(UNFIT is not None, reason=str(UNFIT))
DEVICES = ["cpu", pytest.param("cuda", marks=ON_GPU)]
# The largest error, of the largest value. Triton sums in another order.
TOLERANCES = {"cpu": 1e-6, "cuda": 1e-4}
ROWS = {0: torch.export.Dim("rows", min=2, max=16)}


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with compiled.compiling(request.param):
        yield request.param


class Cache(nn.Module):
    """Attends to the keys and values of all calls so far, which a cache keeps."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(1, 2, 6, 4))
        self.register_buffer("values", torch.zeros(1, 2, 6, 4))

    def forward(self, x, place):
        query, key, value = self.qkv(x).view(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, place, key)
        self.values.index_copy_(2, place, value)
        seen = (torch.arange(6) <= place)[None, None, None]
        return nn.functional.scaled_dot_product_attention(query, self.keys, self.values, seen)


class Tied(nn.Module):
    """Reads one weight twice, once transposed."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 8)

    def forward(self, tokens):
        return nn.functional.linear(self.table(tokens).tanh(), self.table.weight)


def attention():
    torch.manual_seed(0)
    return nn.MultiheadAttention(8, 2, batch_first=True).eval(), [(torch.randn(2, 5, 8),) * 3]


def cache():
    torch.manual_seed(0)
    return Cache(), [(torch.randn(1, 1, 8), torch.tensor([place])) for place in range(4)]


def conv():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*layers).eval(), [(torch.randn(1, 3, 8, 8),) for _ in range(2)]


def topk():
    largest = model(lambda net, x: torch.topk(x.softmax(-1), 3))
    return largest, [(torch.randn(4, 10),) for _ in range(2)]


def cond():
    module, (ones,) = decoders.cond()
    return module, [(torch.ones_like(ones),), (-torch.ones_like(ones),), (ones,)]


def strided():
    by_columns = model(lambda net, x: (x.t().cos()[::2].cumsum(1), x.t()[:, 1:] @ x[1:, ::2]))
    return by_columns, [(torch.randn(6, 4),) for _ in range(2)]


def shared():
    torch.manual_seed(0)
    return Tied(), [(torch.tensor([[1, 5, 9]]),), (torch.tensor([[0, 0, 2]]),)]


def dynamic():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8))
    return layers, [(torch.randn(rows, 6),) for rows in (4, 16, 2, 9)]


KINDS = (cache, topk, attention, conv, cond, strided, shared, dynamic)


@pytest.mark.slice("cpu-cache", "cuda-cache", "cuda-topk")
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_model_computes_what_eager_does(kind, device, record_property):
    """All partitions are CudaPartitioner's, and values over several calls are eager's."""
    module, calls = kind()
    eager = copy.deepcopy(module)
    sizes = {"dynamic_shapes": (ROWS,)} if kind is dynamic else {}
    lowered = Lowerer(["cuda"]).lower(module, calls[0], **sizes)
    assert {part.plugin for part in lowered.plan.partitions} == {"cuda"}
    program = compiled.CompiledProgram.of(lowered)
    program.device = device
    errors = []
    for inputs in calls:
        with torch.no_grad():
            expected = flat(eager(*[value.clone() for value in inputs]))
        for output in compare(program(*inputs), expected):
            errors.append(output.max_error / max(1.0, output.max_value))
    record_property("max_error", max(errors))
    assert max(errors) <= TOLERANCES[device]
