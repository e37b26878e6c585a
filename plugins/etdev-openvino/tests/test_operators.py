"""Every op of OpenVINO's list at the edges of its arguments computes what eager PyTorch does."""

import os
from types import SimpleNamespace

# Products stay in float32 then; read when OpenVINO compiles its first kernel.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI")

import pytest
import torch
from executorch.exir.capture._config import EdgeCompileConfig
from torch import nn

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino.plugin import OpenVinoPlugin
from support.models import operators
from support.models.small import Function
from support.toys.runtime import execute

from etdev import Lowerer
from etdev.lowerer import Settings
from etdev.upstream.trees import flat

LENIENT = Settings(compile_config=EdgeCompileConfig(_check_ir_validity=False))
# These differ on ExecuTorch's portable kernels, and `addcmul` fails before any plugin is asked;
# half precision is kept in float32 between two conversions.
OTHERS = ("remainder", "pow base 0", "fmod", "addcmul", "through float16", "leaky nan")
# A NaN constant; and ExecuTorch's portable kernel, which drops NaN as OpenVINO does.
NAN_OPS = ("gt nan", "ge nan")
PORTABLE_DROPS_NAN = ("max pool", "adaptive max")
DTYPES = (*operators.FLOATS, *operators.INTEGERS, torch.bool)


class Calls(nn.Module):
    """Some cases in one program."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def forward(self, **tensors):
        return [flat(operators.CASES[name](SimpleNamespace(**tensors))) for name in self.names]


def works(name, dtype):
    try:
        operators.CASES[name](operators.inputs(dtype, "plain"))
    except (RuntimeError, TypeError, IndexError, NotImplementedError):
        return False
    return not any(name.startswith(other) for other in OTHERS)


def check(names, dtype, plugin, kinds):
    tensors = vars(operators.inputs(dtype, "plain"))
    lowered = Lowerer([plugin]).lower(Calls(names), (), kwargs=tensors, settings=LENIENT)
    tolerance = 1e-2 if dtype == torch.float16 else 1e-4
    calls = [vars(operators.inputs(dtype, kind)) for kind in kinds]
    results = execute(lowered, *(list(tensors.values()) for tensors in calls))
    for outputs, tensors in zip(results, calls, strict=True):
        for output, value in zip(outputs, flat(Calls(names)(**tensors)), strict=True):
            torch.testing.assert_close(
                output, value, atol=tolerance, rtol=tolerance, equal_nan=True
            )


def chunks(names, size=12):
    return [names[start : start + size] for start in range(0, len(names), size)]


def test_edge_arguments_compute_what_eager_does():
    chosen = ("clamp 0 inf", "hardtanh 0 inf", "hardtanh -inf 0", "squeeze no dims", "squeeze dims",
              "index_put mask", "index_put mask 0", "elu scale", "elu inf", "fmod inf", "var 2",
              "relu", "sum no dims", "roll flat")  # fmt: skip
    names = [name for name in operators.CASES if name in chosen]
    check(names, torch.float32, OpenVinoPlugin(precision="f32"), ("plain", "ties"))


def test_bools_compute_what_eager_does():
    names = ["logical_not", "isnan", "add", "maximum", "full_like 0", "reshape", "amax 1", "eq"]
    check(names, torch.bool, OpenVinoPlugin(precision="f32"), ("plain",))


def test_sums_and_products_in_bools_are_left():
    """`scatter_reduce` of bools is written with them, and OpenVINO can't compile them."""

    def both(x):
        return torch.prod(x, 1, dtype=torch.bool), torch.sum(x, 1, dtype=torch.bool)

    plan = Lowerer([OpenVinoPlugin()]).plan(Function(both), (torch.ones(2, 3).bool(),))["forward"]
    assert plan.owner("aten_prod_dim_int") == plan.owner("aten_sum_dim_int_list") == "portable"


def test_exact_nan_comes_through():
    names = ["relu", "clamp -1 1", "hardtanh -1 1", "exp", "amax 1", "gt", "softmax 1"]
    plugin = OpenVinoPlugin(precision="f32", nan="exact")
    check(names, torch.float32, plugin, ("plain", "nan", "inf"))


def test_ignored_nan_takes_relu_and_exact_names_the_reason():
    module, x = nn.ReLU(), (torch.ones(2, 3),)
    taken = Lowerer([OpenVinoPlugin()]).plan(module, x)["forward"]
    assert taken.owner("aten_relu_default") == "OpenVinoPlugin"
    assert taken.caveats == [
        "OpenVinoPlugin differs from PyTorch at NaN or infinite values: aten.relu.default"
    ]
    left = Lowerer([OpenVinoPlugin(nan="exact")]).plan(module, x)["forward"]
    verdict = left.ledger["aten_relu_default"].verdicts[0]
    assert (verdict.code, verdict.text) == (
        "nan",
        "differs from PyTorch at NaN or infinite values",
    )


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("nan", ["ignored", "exact"])
@pytest.mark.parametrize("precision", ["f32", "bf16", "f32_all"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_op_computes_what_eager_does(dtype, precision, nan):
    plugin = OpenVinoPlugin(precision=precision, nan=nan)
    special = ("nan", "inf") if nan == "exact" and dtype.is_floating_point else ()
    names = [name for name in operators.CASES if works(name, dtype) and name not in NAN_OPS]
    if special:
        names = [name for name in names if not name.startswith(PORTABLE_DROPS_NAN)]
    for chosen in chunks(names):
        check(chosen, dtype, plugin, ("plain", "ties", *special))
