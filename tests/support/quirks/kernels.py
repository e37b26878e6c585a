"""Faults of portable kernels: one call for each, with the values that it is wrong for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.export import Dim
from torch.nn import functional
from torch.utils import _pytree as pytree

from etdev.schema.fault import Fault
from etdev.schema.releases import Release
from support.quirks import REPROS, Repro, model
from support.zoo import random

aten = torch.ops.aten
NAN, INF = math.nan, math.inf
X = random(3, 4)
EDGES = torch.tensor([[0.0, -0.0, NAN, INF], [-INF, 1.5, -2.5, 1e30]])
INTEGERS = torch.tensor([[-7, -3, -1, 0], [1, 2, 5, 7], [-8, 4, 3, -2]])
LARGE = torch.tensor([2**63 - 1, -(2**63), 2**62 + 1, -(2**62) - 1, 3, -3])
LEAST = torch.tensor([-(2**63), 5])
EMPTY = torch.zeros(0, 4)
ROWS = (({0: Dim("rows", max=8)},),)
NO_ROWS = (X, EMPTY)
# Long enough for sums to show in which dtype they are made.
LONG = random(4, 600).abs()

TOLERANCES = {torch.float64: 1e-12, torch.float16: 1e-3}
Function = Callable[..., Any]


def case(name: str, function: Function, *calls: Any, rows: bool = False, **options: Any) -> None:
    """Register a repro of a kernel.

    Args:
        name: The op, and what it is given after a hyphen.
        function: Calls it.
        calls: Its inputs, whose dtype decides the tolerance.
        rows: The number of rows changes.
        options: Others of Repro.
    """
    shapes = ROWS if rows else None
    first = pytree.tree_leaves(calls)[0]
    options = {"tolerance": TOLERANCES.get(first.dtype, 1e-4), **options}

    def make() -> Repro:
        net = model(lambda _, *inputs: function(*inputs))
        return Repro(net, calls, dynamic_shapes=shapes, **options)

    REPROS[f"kernel-{name}"] = make


def crash(name: str, function: Function, *calls: Any, **options: Any) -> None:
    """Register a repro of a kernel that ends the process."""
    case(name, function, *calls, expects="crash", **options)


def fails(name: str, function: Function, *calls: Any, **options: Any) -> None:
    """Register a repro of a kernel that is missing, or fails."""
    case(name, function, *calls, expects="error", **options)


# The runtime has no kernel.
PLACES = torch.tensor([[0, 1], [1, 2], [3, 3]])
VOLUME = random(1, 2, 4, 4, 4)
fails("sort", lambda x: x.sort(1)[0], X)
fails("scatter_reduce.two", lambda x: x.scatter_reduce(1, PLACES, x, "amax"), X)
fails("avg_pool3d", lambda x: functional.avg_pool3d(x, 2), VOLUME)
fails("max_pool3d_with_indices", lambda x: functional.max_pool3d(x, 2), VOLUME)
fails("_adaptive_avg_pool3d", lambda x: functional.adaptive_avg_pool3d(x, (2, 3, 2)), VOLUME)
fails(
    "_embedding_bag",
    lambda x: functional.embedding_bag(torch.tensor([1, 2, 0]), x, torch.tensor([0, 1])),
    X,
)
fails("empty_strided", lambda x: x.new_empty_strided((3, 4), (4, 1)).copy_(x), X)
fails("randperm", lambda x: torch.randperm(4).sum() + x, X)


def softmax_of_halves(x: torch.Tensor) -> torch.Tensor:
    """Compute a softmax in float32, in programs with the op that PyTorch has for GPUs alone."""
    is_export = torch.compiler.is_exporting()
    return aten._softmax.default(x, 1, True) if is_export else x.softmax(1, torch.float32)


# It fails.
fails("convolution-volumes", lambda x: functional.conv3d(x, x[:, :, :2, :2, :2]), VOLUME)
fails("_softmax-half_to_float", softmax_of_halves, X.half(), tolerance=1e-4)
fails("constant_pad_nd-crops", lambda x: functional.pad(x, (-1, 1)), X)
fails(
    "avg_pool2d_backward",
    lambda slope, x: aten.avg_pool2d_backward(slope, x, [2], [2], [0], False, True, None),
    (VOLUME[0, :, ::2, ::2], VOLUME[0]),
)
fails(
    "_adaptive_avg_pool2d_backward",
    aten._adaptive_avg_pool2d_backward,
    (VOLUME[0, :, :2], VOLUME[0]),
)
fails(
    "dequantize.self", lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(), X
)
fails("cumsum-of_a_number", lambda x: x.cumsum(0), torch.tensor(2.0))
fails(
    "masked_select-more",
    lambda x, mask: x[:1].masked_select(mask),
    (X, X > 0),
    exceptions=[aten.masked_select.default],
)
fails("add.Scalar", lambda x: aten.add.Scalar(x, 1.5), INTEGERS)
fails("_to_dim_order_copy-to_complex", lambda x: x.to(torch.complex64), INTEGERS)
crash("amax-of_nothing", lambda x: x.amax(1), EMPTY)
crash("amin-of_nothing", lambda x: x.amin(1), EMPTY)
crash("sum.dim_IntList-of_a_number", lambda x: aten.sum.dim_IntList(x, [0]), torch.tensor(2.0))
case("sum.dim_IntList-of_doubles", lambda x: aten.sum.dim_IntList(x, [1]), LONG.double())
crash("unfold_copy-of_a_number", lambda x: x.unfold(0, 1, 1), torch.tensor(2.0))
crash("narrow_copy-backwards", lambda x: aten.narrow_copy.default(x, -1, 1, 2), X)
SCALES, ZEROS = torch.tensor([0.1, 0.05, 0.02]), torch.tensor([1, 0, -2])
crash(
    "quantize_per_channel-of_floats",
    lambda x, s, z: torch.ops.quantized_decomposed.quantize_per_channel(
        x, s, z, 0, -128, 127, torch.int8
    ),
    (X, SCALES, ZEROS),
    quantised=True,
)

# It is wrong for ordinary values.
case("remainder.Tensor-of_doubles", lambda x, y: x % y, (X.double(), X.flip(0).double() / 3))
case("remainder.Scalar-of_integers", lambda x: x % 4, INTEGERS)
case("mm-sums_nothing", lambda x: x.mT @ x, *NO_ROWS, rows=True, undefined=True)
case(
    "bmm-sums_nothing",
    lambda x: torch.bmm(x.mT[None], x[None]),
    *NO_ROWS,
    rows=True,
    undefined=True,
)
# torch 2.14 counts otherwise, and no longer as the kernel refuses.
case(
    "arange.start_step-of_integers",
    lambda x: torch.arange(0, 5, 1.5, dtype=torch.int64) + x[:1].long(),
    X[0],
    expects="wrong" if Release.parse("torch 2.14").is_reached() else "error",
)
fails("_log_softmax-of_doubles", lambda x: x.log_softmax(1), X.double())
OFFSETS = random(2, 4, 5, 5) + 1000
case("native_layer_norm-of_offsets", lambda x: functional.layer_norm(x, (5, 5)), OFFSETS)
case("native_group_norm-of_offsets", lambda x: functional.group_norm(x, 2), OFFSETS)
case("_native_batch_norm_legit.no_stats-of_offsets", lambda x: functional.instance_norm(x), OFFSETS)
case("native_group_norm-of_doubles", lambda x: functional.group_norm(x, 2), LONG.double())
case(
    "_adaptive_avg_pool2d-of_doubles",
    lambda x: functional.adaptive_avg_pool2d(x, (1, 2)),
    LONG.double()[None],
)
case(
    "_native_batch_norm_legit.no_stats-of_doubles",
    lambda x: functional.instance_norm(x),
    LONG.double()[None],
)
IMAGE = random(1, 2, 4, 5)
case(
    "_upsample_bilinear2d_aa-of_doubles",
    lambda x: functional.interpolate(x, (3, 3), mode="bilinear", antialias=True),
    IMAGE.double(),
)
case(
    "upsample_bilinear2d.vec-of_doubles",
    lambda x: functional.interpolate(x, (7, 7), mode="bilinear"),
    IMAGE.double(),
)
case(
    "max_pool2d_with_indices_backward",
    lambda x: aten.max_pool2d_with_indices_backward.default(
        x[..., :2, :2],
        x,
        [2, 2],
        [2, 2],
        [0, 0],
        [1, 1],
        False,
        functional.max_pool2d(x, 2, return_indices=True)[1],
    ),
    IMAGE,
)

# It is wrong for some values.
crash("roll-of_no_rows", lambda x: x.roll(1, 0), *NO_ROWS, rows=True)
fails(
    "index_select-of_no_rows",
    lambda x: x.index_select(0, torch.zeros(0, dtype=torch.int64)),
    *NO_ROWS,
    rows=True,
)
crash("argmax-of_no_rows", lambda x: x.argmax(), *NO_ROWS, rows=True)
crash("argmin-of_no_rows", lambda x: x.argmin(), *NO_ROWS, rows=True)
case("cat-of_no_rows", lambda x: torch.cat([x, x], 1), *NO_ROWS, rows=True)
crash("amax-of_no_rows", lambda x: x.amax(1), *NO_ROWS, rows=True)
crash("amin-of_no_rows", lambda x: x.amin(1), *NO_ROWS, rows=True)
crash("_log_softmax-of_no_rows", lambda x: x.log_softmax(0), *NO_ROWS, rows=True)
HALF = LONG.half()
case("convolution-of_halves", lambda x: functional.conv1d(x[:, None], x[:1, None]), HALF)
case("addmm-of_halves", lambda x: functional.linear(x, x, x[:, 0]), HALF)
case(
    "addmm-without_bias",
    lambda b, x, y: torch.addmm(b, x, y, beta=0),
    (X[:, :3] + 0, X, X.T.contiguous()),
    (X[:, :3] * NAN, X, X.T.contiguous()),
)
case("native_layer_norm-of_halves", lambda x: functional.layer_norm(x, (600,)), HALF)
case("var.correction-of_halves", lambda x: x.var(1), HALF + 9)
case("var.correction-of_few", lambda x: torch.var(x, 0, correction=2), X, X[:2], X[:1], rows=True)
case("cumsum-of_halves", lambda x: x.cumsum(1), HALF)
case("avg_pool2d-of_halves", lambda x: functional.avg_pool2d(x[None], (4, 600)), HALF * 9)
pools = [EDGES, EDGES.flip(1), EDGES.flip(0), EDGES.flip(0, 1)]
case("max_pool2d_with_indices-of_nan", lambda x: functional.max_pool2d(x[None], (2, 2)), *pools)
GRID = torch.tensor([[[[NAN, 0.0], [INF, 0.5]]]])
case(
    "grid_sampler_2d-at_nan",
    lambda x, grid: functional.grid_sample(x, grid),
    (IMAGE, GRID * 0 + 0.5),
    (IMAGE, GRID),
)
case("sign-of_nan", torch.sign, EDGES)
case(
    "div.Tensor_mode-of_floats",
    lambda x, y: torch.div(x, y, rounding_mode="floor"),
    (EDGES, EDGES.flip(1)),
    (EDGES, EDGES * 0.1),
)
case(
    "div.Tensor_mode-truncates_integers",
    lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    (LARGE, torch.tensor([3, 3, 2, 2, 5, -2])),
)
crash("div.Tensor_mode-of_the_least", lambda x, y: x // y, (LEAST, torch.tensor([-1, 2])))
for rounded in (torch.floor, torch.ceil, torch.trunc):
    case(f"{rounded.__name__}-of_integers", rounded, LARGE)
case("fmod.Tensor-of_integers", torch.fmod, (LARGE, torch.tensor([3, 3, 2, 2, 5, -2])))
case("fmod.Scalar-of_integers", lambda x: torch.fmod(x, 3), LARGE)
case("_cdist_forward-of_order_0", lambda x: torch.cdist(x, x.flip(0), 0.0), EDGES)
case("_pdist_forward-of_order_0", lambda x: functional.pdist(x, 0.0), EDGES)
case(
    "sum.dim_IntList-of_integers",
    lambda x: x.sum(0, dtype=torch.int32),
    torch.full((3, 2), 2**30 + 1, dtype=torch.int32),
)
case("pow.Tensor_Scalar-of_integers", lambda x: x**3, LARGE)
case("pow.Tensor_Scalar-roots", lambda x: x**0.5, EDGES)
case("pow.Tensor_Tensor-of_integers", torch.pow, (INTEGERS, INTEGERS.abs() * 5))
case("pow.Scalar-of_integers", lambda x: torch.pow(3, x), INTEGERS.abs() * 5)
SHIFTS = torch.tensor([70, 64, 63, 3, 100, 1])
for shift in ("left", "right"):
    function = getattr(torch, f"bitwise_{shift}_shift")
    name, ops = f"bitwise_{shift}_shift", getattr(aten, f"bitwise_{shift}_shift")
    case(f"{name}.Tensor", function, (LARGE, SHIFTS), exceptions=[ops.Tensor])
    by_70 = lambda x, shifted=function: shifted(x, 70)  # noqa: E731
    case(f"{name}.Tensor_Scalar", by_70, LARGE, exceptions=[ops.Tensor_Scalar])

# torch's decompositions, which Core ATen leaves to kernels.
LABELS = torch.tensor([[0, 1, -1, 0], [2, -1, 0, 0], [3, 0, 1, 2]])
# The largest value shows whether what was kept was scaled.
case("native_dropout", lambda x: functional.dropout(x, 0.25).amax(), torch.ones(4, 600))
case(
    "multilabel_margin_loss",
    functional.multilabel_margin_loss,
    (X, LABELS),
    fault=Fault(upstream="", fixed="torch 2.14"),
)
case(
    "index_add-out_of_range",
    lambda x, i: x.index_add(0, i, x[:2]),
    (X, torch.tensor([0, 2])),
    (X, torch.tensor([-1, 0])),
)
case(
    "index_copy-out_of_range",
    lambda x, i: x.index_copy(0, i, x[:2]),
    (X, torch.tensor([0, 2])),
    (X, torch.tensor([-1, 0])),
)
case(
    "one_hot-out_of_range",
    lambda i: functional.one_hot(i, 4),
    torch.tensor([0, 3]),
    torch.tensor([-1, 4]),
)
case(
    "binary_cross_entropy-of_no_probability",
    functional.binary_cross_entropy,
    (X.sigmoid(), X.sigmoid()),
    (X, X.sigmoid()),
)
crash("logsumexp-of_no_rows", lambda x: x.logsumexp(0), *NO_ROWS, rows=True)
case(
    "upsample_linear1d.vec-of_infinities",
    lambda x: functional.interpolate(x[None], 7, mode="linear"),
    EDGES,
)
