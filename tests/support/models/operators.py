"""What OpenVINO's ops are called with: every op that its partitioner takes, at edge arguments."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

aten, inf, layers = torch.ops.aten, float("inf"), nn.functional
Case = Callable[[Any], Any]
FLOATS, INTEGERS = (torch.float32, torch.float16), (torch.int32, torch.int64, torch.uint8)


def inputs(dtype: torch.dtype, values: str) -> SimpleNamespace:
    """Tensors to call the cases with: values are `plain`, `ties`, `nan` or `inf`."""
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> torch.Tensor:
        tensor = torch.randn(shape, generator=generator) * 3
        if values == "ties":
            tensor = (tensor / 2).round()
        elif values != "plain":
            tensor.view(-1)[::3] = float(values)
        if values == "inf":
            tensor.view(-1)[1::6] = -inf
        if dtype == torch.bool:
            return tensor > 0
        return (tensor.abs() if dtype == torch.uint8 else tensor).to(dtype)

    return SimpleNamespace(
        x=tensor(2, 3, 4),
        y=tensor(2, 3, 4),
        v=tensor(4),
        m=tensor(4, 4),
        image=tensor(1, 4, 6, 6),
        one=tensor(1, 3, 1),
        w=tensor(4, 4, 3, 3),
        s=tensor(1)[0],
        mask=torch.rand((2, 3, 4), generator=generator) > 0.5,
        some=torch.tensor([2, 0]),
        near=torch.randint(0, 3, (2, 3, 4), generator=generator),
        volume=tensor(1, 2, 4, 4, 4),
    )


def _unary() -> dict[str, Case]:
    names = (
        "abs acos acosh asin asinh atan atanh bitwise_not ceil clone cos cosh erf exp expm1 floor"
        " isfinite isinf isnan log log10 log1p log2 logical_not neg reciprocal relu round rsqrt"
        " sigmoid sign sin sinh sqrt tan tanh trunc tril triu square any all amax amin argmax"
        " argmin max min mean sum prod"
    )
    activations = (
        "elu gelu glu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu"
        " softplus celu hardshrink softshrink tanhshrink softsign"
    )
    ops = {name: getattr(torch, name) for name in names.split()}
    ops.update((name, getattr(layers, name)) for name in activations.split())
    return {name: lambda t, op=op: op(t.x) for name, op in ops.items()}


def _binary() -> dict[str, Case]:
    names = (
        "add sub mul div eq ne lt le gt ge maximum minimum pow fmod remainder atan2 floor_divide"
        " logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor rsub"
    )
    cases: dict[str, Case] = {}
    for name in names.split():
        op = getattr(torch, name)
        cases[name] = lambda t, op=op: op(t.x, t.y)
        cases[f"{name} broadcast"] = lambda t, op=op: op(t.x, t.v)
        cases[f"{name} one"] = lambda t, op=op: op(t.one, t.x)
        cases[f"{name} 2"] = lambda t, op=op: op(t.x, 2)
        cases[f"{name} -1.5"] = lambda t, op=op: op(t.x, -1.5)
        cases[f"{name} rank 0"] = lambda t, op=op: op(t.x, t.s)
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "mul", "add", "maximum"):
        op = getattr(torch, name)
        cases[f"{name} inf"] = lambda t, op=op: op(t.x, torch.tensor(inf))
        cases[f"{name} nan"] = lambda t, op=op: op(t.x, torch.tensor(float("nan")))
    return cases


def _reductions() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for name in ("sum", "mean", "amax", "amin", "prod", "any", "all", "argmax", "argmin", "var",
                 "std", "logsumexp", "cumsum", "softmax", "log_softmax"):  # fmt: skip
        op = getattr(torch, name)
        for dim in (0, 1, -1):
            cases[f"{name} {dim}"] = lambda t, op=op, dim=dim: op(t.x, dim)
        if name not in ("cumsum", "softmax", "log_softmax"):
            cases[f"{name} keep"] = lambda t, op=op: op(t.x, -2, keepdim=True)
        if name not in ("prod", "argmax", "argmin", "cumsum", "softmax", "log_softmax"):
            cases[f"{name} dims"] = lambda t, op=op: op(t.x, (0, -1))
            cases[f"{name} no dims"] = lambda t, op=op: op(t.x, ())
            cases[f"{name} all dims"] = lambda t, op=op: op(t.x, (0, 1, 2))
    for correction in (0, 1, 2):
        cases[f"var {correction}"] = lambda t, c=correction: torch.var(t.x, 1, correction=c)
        cases[f"var_mean {correction}"] = lambda t, c=correction: torch.var_mean(
            t.x, 1, correction=c
        )
    for order in (0, 1, 2, 3, inf, -inf, -1, 0.5):
        cases[f"norm {order}"] = lambda t, o=order: torch.linalg.vector_norm(t.x, o, 1)
    for name in ("max", "min", "sort", "topk"):
        for dim in (0, 1, -1):
            more = (2,) if name == "topk" else ()
            op = getattr(torch, name)
            cases[f"{name} {dim}"] = lambda t, op=op, a=(*more, dim): tuple(op(t.x, *a))
            cases[f"{name} values {dim}"] = lambda t, op=op, a=(*more, dim): op(t.x, *a)[0]
    cases["topk smallest"] = lambda t: torch.topk(t.x, 2, -1, largest=False)[0]
    cases["topk unsorted"] = lambda t: torch.topk(t.x, 2, -1, sorted=False)[0].sum(-1)
    cases["sort descending"] = lambda t: tuple(torch.sort(t.x, -1, descending=True))
    cases["sum to float"] = lambda t: torch.sum(t.x, 1, dtype=torch.float32)
    cases["cumsum to float"] = lambda t: torch.cumsum(t.x, 1, dtype=torch.float32)
    cases["softmax to float"] = lambda t: torch.softmax(t.x, 1, dtype=torch.float32)
    return cases


def _clamps() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for low, high in ((0, None), (None, 0), (-1, 1), (0, inf), (-inf, 0), (-inf, inf), (1, -1),
                      (0.5, 2.5), (inf, None), (None, -inf), (-1e30, 1e30), (-inf, None),
                      (float("nan"), 1), (0, 3e38)):  # fmt: skip
        cases[f"clamp {low} {high}"] = lambda t, a=(low, high): torch.clamp(t.x, *a)
        if None not in (low, high) and low <= high:
            cases[f"hardtanh {low} {high}"] = lambda t, a=(low, high): layers.hardtanh(t.x, *a)
    cases["clamp tensor"] = lambda t: torch.clamp(t.x, t.y)
    cases["clamp tensors"] = lambda t: torch.clamp(t.x, t.y, t.v)
    cases["clamp max tensor"] = lambda t: torch.clamp(t.x, None, t.y)
    for value in (0, -2, 1.5, inf, -inf, float("nan"), True):
        cases[f"full_like {value}"] = lambda t, v=value: torch.full_like(t.x, v) + t.x
        cases[f"masked_fill {value}"] = lambda t, v=value: t.x.masked_fill(t.mask, v)
        cases[f"where {value}"] = lambda t, v=value: torch.where(t.mask, t.x, v)
        cases[f"pad {value}"] = lambda t, v=value: layers.pad(t.x, (1, 2), value=v)
        cases[f"pow {value}"] = lambda t, v=value: torch.pow(t.x, v)
        cases[f"pow base {value}"] = lambda t, v=value: torch.pow(v, t.x)
        cases[f"div {value}"] = lambda t, v=value: torch.div(t.x, v)
        cases[f"fmod {value}"] = lambda t, v=value: torch.fmod(t.x, v)
        cases[f"leaky {value}"] = lambda t, v=value: layers.leaky_relu(t.x, v)
        cases[f"elu {value}"] = lambda t, v=value: layers.elu(t.x, v)
    for mode in ("floor", "trunc", None):
        cases[f"div {mode}"] = lambda t, m=mode: torch.div(t.x, t.y, rounding_mode=m)
        cases[f"div {mode} 2"] = lambda t, m=mode: torch.div(t.x, -2, rounding_mode=m)
    cases["add alpha"] = lambda t: torch.add(t.x, t.y, alpha=3)
    cases["sub alpha"] = lambda t: torch.sub(t.x, t.y, alpha=2)
    cases["rsub alpha"] = lambda t: torch.rsub(t.x, t.y, alpha=2)
    cases["addcmul"] = lambda t: torch.addcmul(t.x, t.y, t.v, value=0.5)
    cases["elu scale"] = lambda t: aten.elu(t.x, 1.5, 0.5, 2.0)
    cases["softplus"] = lambda t: layers.softplus(t.x, 2.0, 1.0)
    cases["gelu tanh"] = lambda t: layers.gelu(t.x, approximate="tanh")
    cases["glu 0"] = lambda t: layers.glu(t.x, 0)
    return cases


def _shapes() -> dict[str, Case]:
    cases: dict[str, Case] = {
        "squeeze": lambda t: torch.squeeze(t.one + 1),
        "squeeze no dims": lambda t: torch.squeeze(t.x + t.x, ()),
        "squeeze -1": lambda t: torch.squeeze(t.one + t.one, -1),
        "squeeze wide": lambda t: torch.squeeze(t.x + t.x, 1),
        "squeeze dims": lambda t: torch.squeeze(t.one, (0, 1, -1)) * t.v[:3],
        "unsqueeze -1": lambda t: torch.unsqueeze(t.x, -1),
        "permute": lambda t: t.x.permute(2, 0, 1),
        "permute -": lambda t: t.x.permute(-1, 0, -2).contiguous(),
        "t": lambda t: t.m.t() + t.m,
        "transpose": lambda t: t.x.transpose(0, -1).contiguous(),
        "reshape": lambda t: (t.x + t.x).reshape(4, -1),
        "flatten": lambda t: t.x.flatten(),
        "expand": lambda t: t.one.expand(2, -1, 4) + t.x,
        "expand more": lambda t: t.v.expand(2, 3, 4).contiguous(),
        "repeat": lambda t: t.x.repeat(2, 1, 1, 2),
        "flip": lambda t: torch.flip(t.x, (0, -1)),
        "flip none": lambda t: torch.flip(t.x, ()),
        "roll": lambda t: torch.roll(t.x, 2, -1),
        "roll flat": lambda t: torch.roll(t.x, 5),
        "roll dims": lambda t: torch.roll(t.x, (1, -1), (0, 2)),
        "cat -1": lambda t: torch.cat([t.x, t.y, t.x], -1),
        "stack": lambda t: torch.stack([t.x, t.y], 1),
        "stack -1": lambda t: torch.stack([t.x, t.y], -1),
        "split": lambda t: torch.split(t.x, 3, -1),
        "split sizes": lambda t: torch.split(t.x, [1, 3], -1),
        "chunk": lambda t: torch.chunk(t.x, 3, 1),
        "unbind": lambda t: torch.unbind(t.x, -1),
        "select": lambda t: t.x[:, -1],
        "slice": lambda t: t.x[:, 1:, ::2],
        "slice -": lambda t: t.x[:, -2:, :-1] + 1,
        "slice far": lambda t: t.x[:, :100],
        "slice none": lambda t: torch.cat([t.x[:, 3:], t.x], 1),
        "select_scatter": lambda t: torch.select_scatter(t.x, t.y[:, 0], 1, -1),
        "slice_scatter": lambda t: torch.slice_scatter(t.x, t.y[..., :2], -1, 1, 4, 2),
        "tril 1": lambda t: torch.tril(t.m, 1),
        "triu -1": lambda t: torch.triu(t.m, -1),
        "tril 9": lambda t: torch.tril(t.x, 9),
        "unfold": lambda t: t.x.unfold(-1, 2, 1),
        "as_strided": lambda t: torch.as_strided(t.x, (2, 2), (1, 2)),
        "narrow": lambda t: torch.narrow(t.x, -1, 1, 2),
        "diagonal": lambda t: torch.diagonal(t.m, 1),
        "zeros_like": lambda t: torch.zeros_like(t.x) + t.x,
        "ones_like": lambda t: torch.ones_like(t.x) * t.x,
        "arange": lambda t: torch.arange(4, dtype=t.x.dtype) + t.x,
        "arange step": lambda t: torch.arange(3, -1, -1, dtype=t.x.dtype) + t.x,
        "pixel_shuffle": lambda t: layers.pixel_shuffle(t.image, 2),
        "pixel_unshuffle": lambda t: layers.pixel_unshuffle(t.image, 2),
        "pad": lambda t: layers.pad(t.x, (1, 2, 0, 3)),
        "pad -": lambda t: layers.pad(t.x, (-1, 2, -1, 0)),
        "reflect": lambda t: layers.pad(t.image, (1, 2, 3, 0), "reflect"),
        "replicate": lambda t: layers.pad(t.image, (1, 2, 3, 0), "replicate"),
        "circular": lambda t: layers.pad(t.image, (1, 2, 3, 0), "circular"),
        "index": lambda t: t.x[:, t.some],
        "index two": lambda t: t.x[t.some.clamp(max=1), t.some],
        "index far": lambda t: t.x[t.some.clamp(max=1), :, t.some],
        "index -": lambda t: t.x[:, t.some - 3],
        "index mask": lambda t: torch.where(t.mask, t.x, t.y),
        "index_select": lambda t: torch.index_select(t.x, -1, t.some),
        "gather": lambda t: torch.gather(t.x, 1, t.near),
        "gather -1": lambda t: torch.gather(t.x, -1, t.near),
        "take_along": lambda t: torch.take_along_dim(t.x, t.near, 1),
        "scatter": lambda t: torch.scatter(t.x, 1, t.near[:, :1], t.y),
        "scatter value": lambda t: torch.scatter(t.x, -1, t.near[..., :1], 2),
        "scatter_add": lambda t: torch.scatter_add(t.x, -1, t.near, t.y),
        "index_put": lambda t: torch.index_put(t.x, (t.some.clamp(max=1),), t.y),
        "index_put add": lambda t: torch.index_put(t.x, (t.some * 0,), t.y, accumulate=True),
        "index_put far": lambda t: torch.index_put(t.x, (None, t.some), t.y[:, :2]),
        "index_put -": lambda t: torch.index_put(t.x, (None, t.some - 3), t.y[:, :2]),
        "index_put mask": lambda t: torch.index_put(t.x, (t.mask,), t.s),
        "index_put mask 0": lambda t: torch.index_put(
            t.x, (t.mask,), torch.tensor(0, dtype=t.x.dtype)
        ),
        "index_put row mask": lambda t: torch.index_put(t.x, (t.mask[:, 0, 0],), t.s),
        "index_copy": lambda t: torch.index_copy(t.x, 1, t.some, t.y[:, :2]),
        "index_copy -1": lambda t: torch.index_copy(t.x, -1, t.some, t.y[..., :2]),
        "index_fill": lambda t: torch.index_fill(t.x, 1, t.some, 1),
        "embedding": lambda t: layers.embedding(t.near, t.m),
        "embedding padding": lambda t: layers.embedding(t.near, t.m, padding_idx=1),
        "one_hot": lambda t: layers.one_hot(t.near, 4) * t.v.unsqueeze(0),
        "fill": lambda t: torch.fill(t.x, 2) + t.x,
        "copy": lambda t: aten.copy(t.x, t.v) + 1,
        "meshgrid": lambda t: torch.meshgrid(t.v, t.v, indexing="ij")[1] + t.m,
        "outer": lambda t: torch.outer(t.v, t.v),
    }
    for dtype in (torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8, torch.bool):
        name = str(dtype).removeprefix("torch.")
        cases[f"to {name}"] = lambda t, d=dtype: t.x.to(d)
        cases[f"tanh to {name}"] = lambda t, d=dtype: torch.tanh(t.x).to(d)
        cases[f"through {name}"] = lambda t, d=dtype: (t.x * 1.5).to(d).to(torch.float32)
    return cases


def _layers() -> dict[str, Case]:
    cases: dict[str, Case] = {
        "layer_norm": lambda t: layers.layer_norm(t.x, (4,)),
        "layer_norm weight": lambda t: layers.layer_norm(t.x, (3, 4), t.x[0], t.y[0], 0.5),
        "group_norm": lambda t: layers.group_norm(t.image, 2),
        "group_norm weight": lambda t: layers.group_norm(t.image, 4, t.v, t.v, 0.1),
        "instance_norm": lambda t: layers.instance_norm(t.image),
        "batch_norm": lambda t: layers.batch_norm(t.image, t.v, t.v.abs() + 1, t.v, t.v, eps=0.1),
        "batch_norm bare": lambda t: layers.batch_norm(t.image, t.v, t.v.abs() + 1),
        "batch_norm train": lambda t: layers.batch_norm(t.image, None, None, training=True),
        "rms_norm": lambda t: layers.rms_norm(t.x, (4,), t.v),
        "mm": lambda t: t.m @ t.m,
        "bmm": lambda t: t.x @ t.y.transpose(1, 2),
        "linear": lambda t: layers.linear(t.x, t.m, t.v),
        "addmm": lambda t: torch.addmm(t.v, t.m, t.m, beta=0.5, alpha=2),
        "baddbmm": lambda t: torch.baddbmm(t.x, t.x, t.m.expand(2, 4, 4), beta=2, alpha=0.5),
        "conv": lambda t: layers.conv2d(t.image, t.w, t.v, 2, 1),
        "conv dilated": lambda t: layers.conv2d(t.image, t.w, dilation=2),
        "conv groups": lambda t: layers.conv2d(t.image, t.w[:, :2], groups=2),
        "conv depthwise": lambda t: layers.conv2d(t.image, t.w[:, :1], groups=4, padding="same"),
        "conv1d": lambda t: layers.conv1d(t.image[0], t.w[0], padding=1),
        "conv transposed": lambda t: layers.conv_transpose2d(t.image, t.w, t.v, 2, 1, 1),
        "conv transposed groups": lambda t: layers.conv_transpose2d(t.image, t.w[:, :1], groups=4),
        "conv3d": lambda t: layers.conv3d(t.volume, t.volume.expand(2, 2, 4, 4, 4)),
        "attention": lambda t: layers.scaled_dot_product_attention(t.x, t.x, t.y),
        "attention causal": lambda t: layers.scaled_dot_product_attention(
            t.image, t.image, t.image, is_causal=True
        ),
        "nearest": lambda t: layers.interpolate(t.image, scale_factor=2),
        "nearest size": lambda t: layers.interpolate(t.image, size=(4, 9)),
        "bilinear": lambda t: layers.interpolate(t.image, scale_factor=2, mode="bilinear"),
        "nearest3d": lambda t: layers.interpolate(t.volume, scale_factor=2),
        "grid_sample": lambda t: layers.grid_sample(
            t.image, t.image[:, :2].permute(0, 2, 3, 1) / 5, align_corners=False
        ),
        "dropout": lambda t: layers.dropout(t.x, 0.5, training=False) + 1,
        "embedding_bag": lambda t: layers.embedding_bag(t.near[0], t.m),
        "fake quantise": lambda t: torch.fake_quantize_per_tensor_affine(t.x, 0.1, 3, 0, 255),
        "fake quantise channels": lambda t: torch.fake_quantize_per_channel_affine(
            t.x, t.v.abs() + 0.1, t.v.int() * 0, 2, -128, 127
        ),
        "adaptive 1": lambda t: layers.adaptive_avg_pool2d(t.image, 1),
        "adaptive": lambda t: layers.adaptive_avg_pool2d(t.image, (2, 4)),
        "adaptive 1d": lambda t: layers.adaptive_avg_pool1d(t.x, 2),
        "adaptive 3d": lambda t: layers.adaptive_avg_pool3d(t.volume, 2),
        "adaptive max": lambda t: layers.adaptive_max_pool2d(t.image, (2, 4)),
    }
    for name, pool in (("max", layers.max_pool2d), ("avg", layers.avg_pool2d)):
        cases[f"{name} pool"] = lambda t, p=pool: p(t.image, 2)
        cases[f"{name} pool overlap"] = lambda t, p=pool: p(t.image, 3, 1)
        cases[f"{name} pool padded"] = lambda t, p=pool: p(t.image, 3, 2, 1)
        cases[f"{name} pool ceil"] = lambda t, p=pool: p(t.image, 4, 4, 0, ceil_mode=True)
        cases[f"{name} pool ceil padded"] = lambda t, p=pool: p(t.image, 4, 3, 1, ceil_mode=True)
        cases[f"{name} pool 3 dims"] = lambda t, p=pool: p(t.image[0] + 1, 2)
    cases["max pool dilated"] = lambda t: layers.max_pool2d(t.image, 2, 1, 0, 2)
    cases["max pool positions"] = lambda t: layers.max_pool2d(t.image, 2, return_indices=True)
    cases["max pool 3d"] = lambda t: layers.max_pool3d(t.volume, 2)
    cases["avg pool uncounted"] = lambda t: layers.avg_pool2d(
        t.image, 3, 2, 1, count_include_pad=False
    )
    cases["avg pool divisor"] = lambda t: layers.avg_pool2d(t.image, 3, 2, divisor_override=2)
    cases["avg pool 1d"] = lambda t: layers.avg_pool1d(t.x, 2)
    cases["avg pool 3d"] = lambda t: layers.avg_pool3d(t.volume, 2)
    return cases


CASES = {**_unary(), **_binary(), **_reductions(), **_clamps(), **_shapes(), **_layers()}
