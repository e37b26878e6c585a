"""Nodes that XNNPACK's matcher takes, and then can't compile, or computes differently from PyTorch.

Every rule was seen in ExecuTorch's runtime with its own XnnpackPartitioner.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Container, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node

from etdev.graph import is_channels_last
from etdev.quirks import FaultyOps
from etdev_cpu.attention import is_of_attention
from etdev_cpu.layers import (
    CONVOLUTION,
    LAYERS,
    NORM,
    argument,
    chain,
    dtypes,
    is_layer,
    is_one_dimensional,
    shape_of,
    short,
    values,
)
from etdev_cpu.options import Options
from etdev_cpu.quantisers import Reason, beside_integers, is_quantiser, quantiser_problem
from etdev_cpu.resizing import is_of_resizing

# Ops whose weights XNNPACK packs when it compiles.
_STATIC = (CONVOLUTION, NORM)
_SEEN = "seen with executorch 1.5.1; tests/support/quirks/xnnpack.py"
_RESHAPES = FaultyOps(upstream=_SEEN, ops=("squeeze_copy", "unsqueeze_copy"))
# What XNNPACK computes with the channels last, in a batch.
_OF_IMAGES = FaultyOps(upstream=_SEEN, ops=("prelu", "max_pool2d", "avg_pool2d", "max"))
_ACTIVATIONS = FaultyOps(upstream=_SEEN, ops=("relu", "hardtanh"))
# Ops that XNNPACK computes with the channels last, and so what reads their results, until an op
# needs the channels in their place again. It forgets that a softmax does.
_CHANNELS_LAST = (CONVOLUTION, NORM, "mean", "upsample_bilinear2d", *_OF_IMAGES.ops)
_NOT_TURNED_BACK = FaultyOps(upstream=_SEEN, ops=("_softmax",))
_CHANNELS_FIRST = ("linear", "squeeze_copy", "unsqueeze_copy", "view_copy")
# XNNPACK's own limit of dimensions.
_RANK = 6
# exp(NaN) is 0, the square root of inf and the sigmoid of 1e30 are NaN, the sine of 1e10 is -4891,
# and so on.
OTHERWISE = "differs from PyTorch at NaN, infinite or huge values"
_IN_FLOAT32 = (
    *("exp", "sqrt", "rsqrt", "maximum", "minimum", "avg_pool2d", "upsample_bilinear2d"),
    *("max_pool2d", "max_pool2d_with_indices", "sigmoid", "sin", "cos", "log"),
)
_WRONG_FLOAT32 = FaultyOps(upstream=_SEEN, ops=_IN_FLOAT32)
# Products of NaN are -inf.
_IN_FLOAT16 = ("relu", "hardtanh", "clamp", "linear", "addmm", "mm", "bmm", CONVOLUTION)
_WRONG_FLOAT16 = FaultyOps(upstream=_SEEN, ops=(*_IN_FLOAT32, *_IN_FLOAT16))
# Weights of a channel that XNNPACK's kernels for layers of single channels have room for. Other
# numbers are filled up with zeros, times whatever other elements lie there; from the last on in
# several passes.
_ROOMS = (1, 3, 4, 9, 25)


def node_problem(node: Node, constants: Container[str], options: Options) -> Reason | None:
    """Return why XNNPACK can't have a node.

    Args:
        node: The call of an op.
        constants: Names of the inputs that the method doesn't write.
        options: The plugin's options.
    """
    if is_quantiser(node):
        return quantiser_problem(node)
    op = short(node)
    found = itertools.chain(
        _of_weights(node, op, constants),
        _of_types(node, op),
        _of_arguments(node, op),
        _of_values(node, op, options),
    )
    code, text = next(found, ("", ""))
    return (code, f"XNNPACK {text}") if code else beside_integers(node)


def _of_weights(node: Node, op: str, constants: Container[str]) -> Iterator[Reason]:
    sources = [chain(weight)[-1] for weight in node.all_input_nodes[1:]]
    if op == CONVOLUTION and any(is_channels_last(s.meta.get("val")) for s in sources):
        yield "constraint", f"needs the weights of {op} contiguous"
    if op in _STATIC and not all(source.name in constants for source in sources):
        yield "constraint", f"needs the weights of {op} constant"
    bias = argument(node, LAYERS[op][2]) if is_layer(node) else None
    if bias is not None and chain(bias)[-1].name not in constants:
        yield "constraint", f"crashes on a bias of {op} that is not constant"


def _of_types(node: Node, op: str) -> Iterator[Reason]:
    given = dtypes([node])
    for dtype in sorted(dtypes(node.all_input_nodes) - given, key=str):
        name = str(dtype).removeprefix("torch.")
        yield "dtype", f"would read the {name} input of {op} as another type"
    if torch.bfloat16 in given and (op == CONVOLUTION or op not in LAYERS):
        yield "dtype", f"has no {op} in bfloat16"
    if not all(dtype.is_floating_point for dtype in given):
        yield "dtype", f"computes {op} in floating point"
    if any(value.dim() > _RANK for value in values([node, *node.all_input_nodes])):
        yield "rank", f"has no tensors of more than {_RANK} dimensions"


def _of_arguments(node: Node, op: str) -> Iterator[Reason]:
    source, others = (*node.args, None)[0], node.args[1:]  # type: Any, Any
    sizes = shape_of(source) if isinstance(source, Node) else ()
    dynamic = sum(not isinstance(size, int) for size in shape_of(node))
    reshapes = op in _RESHAPES or (op in _STATIC and is_one_dimensional(node))
    if reshapes and dynamic > 1:
        yield "constraint", f"can't reshape {op} with more than one dynamic size"
    if op == "slice_copy" and _starts_before(sizes, *others):
        yield "constraint", "can't compile a slice that starts before the first row"
    if _is_copy(node) and _is_read_twice(node):
        yield "constraint", "has no copy of one of its outputs"
    if op == "max" and not any(node.args[2:3]):
        yield "arguments", "can't compile max without keepdim"
    if op == "max" and node.args[1] not in (2, 3):
        yield "arguments", "can't compile max along other dimensions than 2 and 3"
    if op == "elu" and any(scale != 1 for scale in node.args[2:]):
        yield "arguments", "ignores the scales of elu"
    if op == "addmm" and any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        yield "arguments", "ignores alpha and beta of addmm"
    if op in _ACTIVATIONS and short(source) in _ACTIVATIONS:
        yield "arguments", "keeps only the last of two activations behind a layer"
    if op in _OF_IMAGES and len(sizes) != 4:
        yield "arguments", f"can't compile {op} of other than 4 dimensions"
    if op in _NOT_TURNED_BACK and _may_have_channels_last(source):
        yield "order", "takes the softmax of an image over its channels"
    if op == "upsample_bilinear2d" and _has_own_scales(sizes, shape_of(node), *others[1:]):
        yield "arguments", "takes the scales of sizes, not those given, for upsample_bilinear2d"
    if op.startswith("permute") and not sizes:
        yield "arguments", "can't load a permute without dimensions"
    if op == NORM and len(sizes) == 2 and not is_layer(source):
        yield "arguments", "can't compile a batch norm of 2 dimensions without its layer"
    if op == NORM and source.target is operator.getitem and short(source.args[0]) == NORM:
        yield "arguments", "can't compile a batch norm of what another one gives"


def _of_values(node: Node, op: str, options: Options) -> Iterator[Reason]:
    if op in ("ceil", "floor"):
        yield "precision", f"takes the smallest numbers for 0, by which {op} is off by 1"
    tanh = op == "gelu" and node.kwargs.get("approximate") == "tanh"
    if tanh and not options.approximate and torch.float32 in dtypes([node]):
        yield "precision", "has a tanh GELU that is off by up to 5e-4; see approximate"
    if options.nan == "exact" and loses_nan(node):
        yield "nan", OTHERWISE


def loses_nan(node: Node) -> bool:
    """Return True if XNNPACK's result is not PyTorch's at NaN, infinities or huge values."""
    op, read = short(node), dtypes(node.all_input_nodes)
    wrong = {torch.float32: _WRONG_FLOAT32, torch.float16: _WRONG_FLOAT16}
    # A convolution of single channels spreads them, and bicubic resizing does.
    spreads = is_of_resizing(node) or (op == CONVOLUTION and _fills_up(*node.args))
    return spreads or is_of_attention(node) or any(op in wrong.get(dtype, ()) for dtype in read)


def _starts_before(sizes: Sequence[Any], dim: int = 0, start: Any = None, *_: Any) -> bool:
    """Return True if a slice starts further from the end than there are rows, as `x[-100:]` may."""
    return isinstance(start, int) and isinstance(sizes[dim], int) and start < -sizes[dim]


def _may_have_channels_last(value: Node) -> bool:
    """Return True if XNNPACK may compute a value of four dimensions with the channels last."""
    reached, seen = [value], set[Node]()
    while reached:
        node = reached.pop()
        if node in seen or len(shape_of(node)) != len("NCHW") or short(node) in _CHANNELS_FIRST:
            continue
        if short(node) in _CHANNELS_LAST or is_channels_last(node.meta.get("val")):
            return True
        seen.add(node)
        reached += node.all_input_nodes
    return False


def _has_own_scales(before: Any, after: Any, corners: bool = False, scales: Any = None) -> bool:
    """Return True if the scales of a resized image are not the ratios of its sizes."""
    sizes = zip(before[2:], after[2:], scales or (), strict=False)
    return not corners and any(
        scale != int(scale) and not (isinstance(old, int) and old * scale == new)
        for old, new, scale in sizes
    )


def _fills_up(source: Any, weight: Any, *others: Any) -> bool:
    """Return True if XNNPACK has no kernel for the weights of a convolution of single channels."""
    transposed, groups = others[4], others[6]
    outputs, inputs, *sizes = shape_of(weight)
    single = not transposed and inputs == 1 and groups == outputs
    return single and math.prod(sizes) < _ROOMS[-1] and math.prod(sizes) not in _ROOMS


def _is_read_twice(copy: Node) -> bool:
    """Return True if a copy and its source, or another copy of it, are read.

    XNNPACK's compiler removes copies, and then can't return one value twice.
    """
    same = [next(node for node in chain(copy) if not _is_copy(node))]
    for value in same:
        same += filter(_is_copy, value.users)
    read = [v for v in same if v.op == "call_function" and not all(map(_is_copy, v.users))]
    return len(read) > 1


def _is_copy(node: Node) -> bool:
    return "clone" in short(node)
