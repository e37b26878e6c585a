"""NaN and infinities on XNNPACK: with `nan = "exact"` they come through."""

import pytest
import torch
from etdev_cpu.plugin import CpuPlugin
from support.models.small import Function
from support.toys.runtime import assert_agrees, execute
from torch import nn
from torch.export import Dim

from etdev import Lowerer

OPS = {
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "maximum": lambda x: torch.maximum(x, x.flip(-1)),
    "minimum": lambda x: torch.minimum(x, x.flip(-1)),
    "max_pool2d": lambda x: nn.functional.max_pool2d(x, 2),
    "avg_pool2d": lambda x: nn.functional.avg_pool2d(x, 2),
    "upsample": lambda x: nn.functional.interpolate(x, (7, 7), mode="bilinear", align_corners=True),
    "relu": nn.functional.relu,
    "relu6": nn.functional.relu6,
    "clamp": lambda x: x.clamp(-1, 1),
    "conv and relu": lambda x: nn.functional.relu(
        nn.functional.conv2d(x, torch.ones(2, 2, 1, 1, dtype=x.dtype))
    ),
    "sum and clamp": lambda x: (x + 1).clamp(min=0),
    "softplus": nn.functional.softplus,
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: nn.functional.softmax(x, -1),
    "elu": nn.functional.elu,
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "conv": lambda x: nn.functional.conv2d(x, torch.ones(2, 2, 2, 2, dtype=x.dtype)),
    "conv of channels": lambda x: nn.functional.conv2d(
        x, torch.ones(2, 1, 2, 3, dtype=x.dtype), groups=2
    ),
    "linear": lambda x: nn.functional.linear(x, torch.eye(4, dtype=x.dtype)),
    "product": lambda x: x[0] @ x[0].mT,
}


@pytest.mark.slice("torch.float32")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_exact_nan_and_infinities_come_through(dtype):
    model, shape = Function(lambda x: [op(x) for op in OPS.values()]), (1, 2, 4, 4)
    lowered = Lowerer([CpuPlugin(nan="exact")]).lower(model, (torch.ones(shape, dtype=dtype),))
    assert lowered.plan["forward"].partitions
    values = (float("nan"), float("inf"), -float("inf"), -0.0, -1.5, -1e30, 1e10)
    inputs = torch.rand(len(values), *shape).to(dtype) + 0.5
    inputs[:, 0, 0, 1, 2] = torch.tensor(values)
    for value, x, outputs in zip(
        values, inputs, execute(lowered, *inputs.unsqueeze(1)), strict=True
    ):
        for name, output, expected in zip(OPS, outputs, model(x), strict=True):
            torch.testing.assert_close(
                output, expected, atol=1e-2, rtol=1e-2, equal_nan=True,
                msg=lambda text, name=name, value=value: f"{name} of {value}: {text}",
            )  # fmt: skip


def test_ignored_nan_takes_exp_and_exact_names_the_reason():
    module, x = Function(torch.exp), (torch.ones(2, 3),)
    taken = Lowerer([CpuPlugin()]).plan(module, x)["forward"]
    assert taken.owner("aten_exp_default") == "CpuPlugin"
    left = Lowerer([CpuPlugin(nan="exact")]).plan(module, x)["forward"]
    verdict = left.ledger["aten_exp_default"].verdicts[0]
    assert (verdict.code, verdict.text) == (
        "nan",
        "XNNPACK differs from PyTorch at NaN, infinite or huge values",
    )


def test_the_plan_names_the_ops_that_ignore_nan_in_a_line():
    affected, x = nn.Sequential(nn.Linear(8, 8), Function(torch.exp)), (torch.randn(2, 8),)
    line = "cpu differs from PyTorch at NaN, infinite or huge values: aten.exp.default"
    plan = Lowerer(["cpu"]).plan(affected, x)
    assert plan["forward"].caveats == [line]
    assert plan.summary.endswith(f"; {line}")
    assert not Lowerer([CpuPlugin(nan="exact")]).plan(affected, x)["forward"].caveats
    assert not Lowerer(["cpu"]).plan(nn.Linear(8, 8), x)["forward"].caveats


class Attention(nn.Module):
    """Attention without a mask, and with one."""

    def forward(self, query, key, value, mask):
        known = nn.functional.scaled_dot_product_attention
        return known(query, key, value), known(query, key, value, attn_mask=mask)


def heads(rows):
    mask = torch.zeros(rows, rows)
    mask[0], mask[-1, ::2] = -torch.inf, -torch.inf
    return (*(torch.randn(2, 3, rows, 8) for _ in range(3)), mask)


@pytest.mark.suite
def test_attention_without_a_mask_has_a_plain_softmax():
    rows = Dim("rows", min=2, max=9)
    shapes = ({2: rows}, {2: rows}, {2: rows}, {0: rows, 1: rows})
    calls = [heads(count) for count in (5, 9, 2, 7)]
    lowered = Lowerer([CpuPlugin()]).lower(Attention(), calls[0], dynamic_shapes=shapes)
    assert_agrees(lowered, Attention(), *calls)
    told = [entry.op for entry in lowered.plan["forward"].ledger if entry.caveat]
    assert told == ["aten._softmax.default"]


def test_exact_attention_is_zero_where_all_scores_are_minus_infinity():
    query, key, value, mask = heads(5)
    query[0, 0, 0], key[0, 0] = 1e30, -1e30
    expected = Attention()(query, key, value, mask)
    for nan in ("ignored", "exact"):
        lowered = Lowerer([CpuPlugin(nan=nan)]).lower(Attention(), heads(5))
        plain, masked = execute(lowered, (query, key, value, mask))[0]
        assert plain[0, 0, 0].isnan().all() == (nan == "ignored")
        torch.testing.assert_close(plain[1], expected[0][1])
        torch.testing.assert_close(masked, expected[1])
    torch.testing.assert_close(plain, expected[0])


def test_a_sine_that_is_wrong_at_huge_values_alone_is_verified():
    lowered = Lowerer(["cpu"]).lower(Function(lambda x: (30 * x).sin()), (torch.rand(4, 3),))
    assert lowered.plan["forward"].caveats
    assert lowered.verify(runner="python").calls >= 17
