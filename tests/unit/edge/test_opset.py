"""Ops outside Core ATen: decomposed with torch's other tables, or all refused by name."""

from pathlib import Path

import pytest
import torch
from executorch.exir import EdgeCompileConfig
from support.models.small import Function, Several
from support.toys.runtime import assert_agrees, execute
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from etdev import Lowerer, Settings
from etdev.errors import LoweringError


def normal(*shape):
    return torch.randn(shape)


FURTHER = (
    (lambda m, a, v: torch.addmv(m, a, v, beta=2, alpha=3), [(3,), (3, 4), (4,)]),
    (lambda x: torch.cumprod(x, 1), [(3, 4)]),
    (lambda x: torch.var_mean(x, dim=1), [(3, 4)]),
    (lambda x, y: torch.ldexp(x, y), [(3, 4), (3, 4)]),
    (lambda x, y, z: torch.addbmm(x, y, z, beta=2, alpha=3), [(5,), (2, 3, 4), (2, 4, 5)]),
    (lambda x, y, w: nn.functional.bilinear(x, y, w), [(2, 3), (2, 4), (5, 3, 4)]),
    (lambda x, s: torch.diagonal_scatter(x, s, 1, 2, 0), [(3, 4, 5), (4, 2)]),
    (lambda x, s: torch.diagonal_scatter(x, s, -1), [(3, 5), (2,)]),
    (lambda x: x.clone().fill_diagonal_(5), [(3, 5)]),
    (lambda x: (2 * x).fill_diagonal_(5, wrap=True), [(7, 3)]),
    (lambda x, s: torch.as_strided_scatter(x, s, (2, 3), (1, 4), 2), [(4, 5), (2, 3)]),
)


@pytest.mark.suite
def test_what_torch_decomposes_further_runs_as_in_pytorch():
    module = Several([(function, len(shapes)) for function, shapes in FURTHER])
    inputs = tuple(normal(*shape) for _, shapes in FURTHER for shape in shapes)
    calls = [tuple(scale * value for value in inputs) for scale in (1, 1e-3, 20)]
    assert_agrees(Lowerer([]).lower(module, inputs), module, *calls)


@pytest.mark.slice("float32")
@pytest.mark.parametrize("function", [torch.exp2, torch.fmax, torch.fmin])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_formulas_hold_at_the_edges_of_each_dtype(function, dtype):
    values = torch.tensor([0, -0.0, 1, -1, 2.5, 127, -150, 1e-45])
    if dtype.is_floating_point:
        values = torch.cat([values, torch.tensor([float("nan"), float("inf"), -float("inf")])])
    pairs = [grid.to(dtype).clone() for grid in torch.meshgrid(values, values, indexing="ij")]
    inputs = pairs[: 1 if function is torch.exp2 else 2]
    lowered = Lowerer([]).lower(Function(function), tuple(inputs))
    ((computed,),) = execute(lowered, inputs)
    torch.testing.assert_close(computed, function(*inputs), equal_nan=True)


def test_all_ops_that_nothing_decomposes_are_named_with_their_lines():
    def forward(x):
        y = torch.special.airy_ai(x)
        return torch.special.bessel_y1(y) + torch.special.airy_ai(y)

    line = forward.__code__.co_firstlineno + 1
    file = Path(forward.__code__.co_filename).name
    with pytest.raises(LoweringError) as caught:
        Lowerer([]).plan(
            {"one": (Function(forward), (normal(2),)), "two": (nn.ReLU(), (normal(2),))}
        )
    assert caught.value.what == (
        "neither ExecuTorch nor torch decomposes "
        f"aten.special_airy_ai.default at {file}:{line}, "
        f"aten.special_bessel_y1.default at {file}:{line + 1}, "
        f"aten.special_airy_ai.default at {file}:{line + 1} into Core ATen"
    )


def test_a_multiplication_and_addition_in_one_is_both():
    """Dynamo writes it for `addcdiv_`."""

    def forward(x, y):
        return (x * 2).addcdiv_(x, y, value=-2)

    inputs = (normal(4), normal(4).abs() + 1)
    program = torch.export.export(Function(forward), inputs, strict=True)
    assert "prims.fma" in str(program.graph)
    assert_agrees(Lowerer([]).lower(program), forward, inputs, inputs[::-1])


def test_a_conversion_in_the_pieces_of_an_op_is_a_copy():
    """torch decomposes `renorm` of halves into a primitive that converts its result."""

    def forward(x):
        return torch.renorm(x, 2, 1, 0.5)

    inputs = (normal(3, 4).half(),)
    assert_agrees(Lowerer([]).lower(Function(forward), inputs), forward, inputs)


def test_a_call_of_graphs_that_executorch_does_not_know_is_refused():
    def forward(x):
        return flex_attention(x, x, x, score_mod=lambda score, b, h, q, k: score + (q - k))

    with pytest.raises(LoweringError, match="SpecViolationError"):
        Lowerer([]).plan(Function(forward), (normal(1, 2, 4, 8),))


def test_an_op_that_the_caller_has_a_kernel_for_stays():
    def forward(x):
        return torch.special.airy_ai(x) + torch.cumprod(x, 0)

    mine = [torch.ops.aten.special_airy_ai.default, torch.ops.aten.cumprod.default]
    settings = Settings(EdgeCompileConfig(_core_aten_ops_exception_list=mine))
    plan = Lowerer([]).plan(Function(forward), (normal(2),), settings=settings)
    ops = {entry.op for entry in plan["forward"].ledger}
    assert {"aten.special_airy_ai.default", "aten.cumprod.default"} <= ops


def test_a_computation_of_numbers_that_executorch_has_no_op_for_is_refused_by_name():
    number = Function(lambda x: x * (x.sum() > 0).item())
    with pytest.raises(LoweringError, match="neither ExecuTorch nor torch decomposes sym_ite"):
        Lowerer([]).lower(number, (torch.ones(2),))
