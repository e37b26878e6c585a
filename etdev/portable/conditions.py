"""Conditions on the arguments of a node under which its portable kernel fails or is wrong."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from etdev.graph import aten_op
from etdev.portable.decompositions import halves, quantisers
from etdev.portable.decompositions.sizes import least

# Layer norms of fewer values have no vectorised kernel: ExecuTorch's kSmallNThreshold.
_VECTORISED = 256


def always(node: Node) -> bool:
    return True


def first_is_read(node: Node) -> bool:
    """Return True if only the first result of a node is read."""
    return all(user.args[1] == 0 for user in node.users)


def integers(node: Node) -> bool:
    dtype = _value(node).dtype
    return not dtype.is_floating_point and dtype != torch.bool


def floats(node: Node) -> bool:
    return _input(node).dtype.is_floating_point


def double(node: Node) -> bool:
    return _input(node).dtype == torch.float64


def tanh_of_floats(node: Node) -> bool:
    """Return True if a GELU is approximated by a tanh, in float32."""
    return node.kwargs.get("approximate") == "tanh" and _input(node).dtype == torch.float32


def means_rows(node: Node) -> bool:
    """Return True if the mean of float32 is taken over the last dimension alone."""
    x = _input(node)
    dynamic = sum(not isinstance(size, int) for size in x.shape)
    last = x.dim() > 1 and list(node.args[1]) in ([-1], [x.dim() - 1])  # type: ignore[arg-type]
    return last and dynamic <= 1 and x.dtype == torch.float32 and "dtype" not in node.kwargs


def cancels(node: Node) -> bool:
    """Return True if a norm may lose the variance beside a large mean."""
    return _input(node).dtype == torch.float32 and not _is_centred(node)


def half_or_cancels(node: Node) -> bool:
    """Return True if a layer norm is of halves, or if it cancels; the vectorised kernel doesn't."""
    count = math.prod(node.args[1])  # type: ignore[arg-type]
    short = not isinstance(count, int) or count < _VECTORISED
    return half(node) or (short and cancels(node))


def _is_centred(node: Node) -> bool:
    """Return True if a value of each row is subtracted from it before a norm."""
    source = node.all_input_nodes[0]
    while aten_op(source.target) is torch.ops.aten.view.default:
        source = source.all_input_nodes[0]
    if aten_op(source.target) is not torch.ops.aten.sub.Tensor:
        return False
    rows, start = source.args
    while isinstance(start, Node) and aten_op(start.target) is torch.ops.aten.slice.Tensor:
        start = start.args[0]
    return start is rows


def half(node: Node) -> bool:
    return _input(node).dtype in halves.DTYPES


def zero_dim(node: Node) -> bool:
    return _input(node).dim() == 0


def convolves_3d(node: Node) -> bool:
    return len(node.args[3]) == 3 or _value(node.args[1]).dim() == 5  # type: ignore[arg-type]


def half_to_float(node: Node) -> bool:
    return _argument(node, 2, "half_to_float") is True


def double_or_integers(node: Node) -> bool:
    return double(node) or integers(node)


def double_or_dynamic(node: Node) -> bool:
    return double(node) or any(isinstance(size, torch.SymInt) for size in _value(node).shape)


def double_or_half_to_float(node: Node) -> bool:
    return double(node) or half_to_float(node)


def negative_dim(node: Node) -> bool:
    dim = _argument(node, 1, "dim")
    return isinstance(dim, int) and dim < 0


def double_or_signed(node: Node) -> bool:
    dtype = _value(node).dtype
    return dtype == torch.float64 or (integers(node) and dtype.is_signed)


def may_contract_empty(node: Node) -> bool:
    """Return True if a product has an inner size of 0, or may have one, and a nonempty result."""
    return least(_input(node).shape[-1]) <= 0 and 0 not in map(least, _value(node).shape)


def optimised_fails(node: Node) -> bool:
    """Return True if a linear layer is of a vector, of nothing, or in another dtype than floats."""
    value, known = _input(node), (torch.float32, torch.float64)
    return value.dtype not in known or value.dim() < 2 or least(value.shape[-1]) <= 0


def is_empty(node: Node) -> bool:
    return 0 in _input(node).shape


def may_be_empty(node: Node) -> bool:
    return any(least(size) <= 0 for size in _input(node).shape)


def interpolates_or_pads(node: Node) -> bool:
    """Return True if a node interpolates, or pads, at places that may be NaN."""
    mode, padding = node.args[2:4]
    return (mode, padding) != (1, 0)


def promotes(node: Node) -> bool:
    """Return True if the result has another dtype than the tensor that a number is added to."""
    return _value(node).dtype != _input(node).dtype


def makes_complex(node: Node) -> bool:
    known = (torch.float16, torch.float32, torch.float64)
    return _value(node).dtype.is_complex and _input(node).dtype not in known


def may_search_empty(node: Node) -> bool:
    """Return True if the extreme of a whole tensor is searched, which may be empty."""
    return _argument(node, 1, "dim") is None and may_be_empty(node)


def may_join_empty(node: Node) -> bool:
    """Return True if another dimension than the joined one is 0, or may be 0."""
    sizes = [least(size) for size in _value(node).shape]
    axis = _argument(node, 1, "dim") or 0
    return len(sizes) > 1 and 0 in sizes[: axis % len(sizes)] + sizes[axis % len(sizes) + 1 :]


def may_be_empty_along_dim(node: Node) -> bool:
    """Return True if the size of the dimension along which a node works is or may be 0."""
    sizes, axis = _input(node).shape, _argument(node, 1, "dim")
    return bool(sizes) and least(sizes[axis]) <= 0


def half_or_uncertain(node: Node) -> bool:
    """Return True if a variance is of halves, or of so few values that it may be infinite."""
    correction = node.kwargs.get("correction")
    return half(node) or (isinstance(correction, (int, float)) and correction > 1)


def rounds_steps(node: Node) -> bool:
    """Return True if a range of integers has fractional, huge or bool limits."""
    numbers = node.args[:3]
    if any(isinstance(value, bool) for value in numbers):
        return True
    if not integers(node) or not all(isinstance(value, (int, float)) for value in numbers):
        return False
    return any(float(value) != value or value != int(value) for value in numbers)  # type: ignore[arg-type]


def sum_fails(node: Node) -> bool:
    doubles = _value(node).dtype == torch.float64 and _input(node).numel()
    return zero_dim(node) or bool(doubles)


def half_or_unweighted(node: Node) -> bool:
    """Return True if `alpha` or `beta` is 0, so that PyTorch reads no NaN; or for halves."""
    unweighted = 0 in (node.kwargs.get("beta"), node.kwargs.get("alpha"))
    return half(node) or (floats(node) and unweighted)


def scales_in_other_dtypes(node: Node) -> bool:
    """Return True if a quantiser is given scales or zero points that its kernel doesn't take."""
    given = zip(node.args[1:3], quantisers.DTYPES, strict=True)
    return any(isinstance(n, Node) and _value(n).dtype != dtype for n, dtype in given)


def sum_rounds(node: Node) -> bool:
    """Return True if a kernel adds integers in float32."""
    dims = _argument(node, 1, "dim")
    axes = len(dims) if dims else _input(node).dim()
    return axes == 1 and integers(node) and _input(node).dtype == _value(node).dtype


def divides(node: Node) -> bool:
    """Return True if a quotient that is rounded is wrong for integers, infinities or NaN."""
    if node.kwargs.get("rounding_mode") == "trunc":
        return _value(node).dtype == torch.int64
    if node.kwargs.get("rounding_mode") != "floor":
        return False
    wide = _value(node).dtype in (torch.int32, torch.int64)
    # The least of them may be divided by -1.
    divisor = node.args[1]
    several = isinstance(divisor, Node) and _value(divisor).dim() > 0
    return not integers(node) or (wide and several)


def integers_or_root(node: Node) -> bool:
    return integers(node) or (floats(node) and node.args[1] in (0.5, -0.5))


def shifts_out(node: Node) -> bool:
    places = node.args[1]
    return not isinstance(places, int) or not 0 <= places < torch.iinfo(_input(node).dtype).bits


def crops(node: Node) -> bool:
    """Return True if some padding is negative."""
    pad: Any = node.args[1]
    return any(isinstance(size, int) and size < 0 for size in pad)


def cdist_of_p_0(node: Node) -> bool:
    return bool(node.args[2] == 0)


def pdist_of_p_0(node: Node) -> bool:
    return bool(_argument(node, 1, "p") == 0)


def two_sided(node: Node) -> bool:
    """Return True if a Fourier transform is of all frequencies, where its kernel always fails."""
    return node.args[3:] == (False,)


def _argument(node: Node, index: int, name: str) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name)


def _input(node: Node) -> torch.Tensor:
    return _value(node.all_input_nodes[0])


def _value(node: Any) -> torch.Tensor:
    return node.meta["val"]
