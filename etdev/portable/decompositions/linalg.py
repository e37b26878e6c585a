"""Formulas of linear algebra, unrolled over the rows of small matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.sizes import fixed

aten = torch.ops.aten
# A step for each row, of ten ops or so.
_LARGEST = 32


def _rows(x: Tensor) -> int:
    """Return the number of rows.

    Raises:
        NotImplementedError: It may change, or is too large to write down what is done to each.
    """
    size = fixed(x.shape[-2])
    if size > _LARGEST:
        raise NotImplementedError(f"more than {_LARGEST} rows")
    return size


def _at(x: Tensor, row: int, column: int) -> Tensor:
    return x.narrow(-2, row, 1).narrow(-1, column, 1)


def _swapped(x: Tensor, order: Tensor) -> Tensor:
    return torch.gather(x, -2, order.unsqueeze(-1).expand(x.shape))


def _factors(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Eliminate with partial pivoting.

    Returns:
        The factors in one matrix, the order of the rows, the swap of each step, and the sign.
    """
    rows, columns = _rows(a), fixed(a.shape[-1])
    places = torch.arange(rows, device=a.device)
    order = places.expand(a.shape[:-1])
    sign = torch.ones(a.shape[:-2], dtype=a.dtype, device=a.device)
    swaps = []
    for step in range(min(rows, columns)):
        column = a.select(-1, step).narrow(-1, step, rows - step)
        pivot = torch.argmax(column.abs(), -1, keepdim=True) + step
        swap = torch.where(places == step, pivot, torch.where(places == pivot, step, places))
        a, order = _swapped(a, swap), torch.gather(order, -1, swap)
        sign = torch.where(pivot.squeeze(-1) == step, sign, -sign)
        swaps.append(pivot + 1)
        if step + 1 == rows:
            break
        top, below = a.narrow(-2, 0, step + 1), a.narrow(-2, step + 1, rows - step - 1)
        largest = _at(a, step, step)
        # Of a column without a pivot only zeros are left.
        factor = below.narrow(-1, step, 1) / torch.where(largest == 0, 1, largest)
        rest = below.narrow(-1, step + 1, columns - step - 1)
        row = a.narrow(-2, step, 1).narrow(-1, step + 1, columns - step - 1)
        below = torch.cat([below.narrow(-1, 0, step), factor, rest - factor * row], -1)
        a = torch.cat([top, below], -2)
    return a, order, torch.cat(swaps, -1).to(torch.int32), sign


def _solved(a: Tensor, b: Tensor, upper: bool, unit: bool = False) -> Tensor:
    """Substitute forwards or backwards, row by row."""
    size = _rows(a)
    rows: list[Tensor] = []
    for step in range(size):
        row = size - 1 - step if upper else step
        value = b.narrow(-2, row, 1)
        if rows:
            known = torch.cat(rows[::-1] if upper else rows, -2)
            first = row + 1 if upper else 0
            value = value - a.narrow(-2, row, 1).narrow(-1, first, step) @ known
        rows.append(value if unit else value / _at(a, row, row))
    return torch.cat(rows[::-1] if upper else rows, -2)


def _det(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    factors, _, swaps, sign = _factors(a)
    diagonal = torch.diagonal(factors, 0, -2, -1)
    return sign * torch.prod(diagonal, -1), factors, swaps


def _slogdet(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, _, swaps, sign = _factors(a)
    diagonal = torch.diagonal(factors, 0, -2, -1)
    signs = sign * torch.prod(torch.sign(diagonal), -1)
    return signs, torch.log(diagonal.abs()).sum(-1), factors, swaps


def _solve_ex(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, order, swaps, _ = _factors(a if left else a.mT)
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    right = b.unsqueeze(-1) if vector else b if left else b.mT
    right, order = _broadcast(right, order)
    result = _solved(factors, _solved(factors, _swapped(right, order), False, True), True)
    result = result.squeeze(-1) if vector else result if left else result.mT
    return result, factors, swaps, _singular(factors)


def _broadcast(right: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Return a right side and the order of its rows, with the same batch."""
    rows = torch.zeros_like(order).unsqueeze(-1)
    columns = torch.zeros_like(right)
    return right + rows.to(right.dtype), order + columns.select(-1, 0).to(order.dtype)


def _singular(factors: Tensor) -> Tensor:
    """Return the first zero on the diagonal, counted from 1, as LAPACK tells."""
    zero = torch.diagonal(factors, 0, -2, -1) == 0
    first = torch.argmax(zero.to(torch.uint8), -1) + 1
    return torch.where(zero.any(-1), first, 0).to(torch.int32)


def _inv_ex(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    size = _rows(a)
    eye = torch.eye(size, dtype=a.dtype, device=a.device).expand(a.shape)
    result, _, _, info = _solve_ex(a, eye)
    return result, info


def _cholesky_ex(
    a: Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    size = _rows(a)
    a = a.mT if upper else a
    columns: list[Tensor] = []
    pivots = []
    for step in range(size):
        column = a.narrow(-1, step, 1).narrow(-2, step, size - step)
        for earlier in columns:
            below = earlier.narrow(-2, step, size - step)
            column = column - below * below.narrow(-2, 0, 1)
        pivot = column.narrow(-2, 0, 1)
        pivots.append(pivot.squeeze(-1))
        column = column / torch.sqrt(pivot)
        columns.append(torch.constant_pad_nd(column, [0, 0, step, 0]))
    factor = torch.cat(columns, -1)
    failed = ~(torch.cat(pivots, -1) > 0)
    info = torch.where(failed.any(-1), torch.argmax(failed.to(torch.uint8), -1) + 1, 0)
    return factor.mT if upper else factor, info.to(torch.int32)


def _cholesky(a: Tensor, upper: bool = False) -> Tensor:
    return _cholesky_ex(a, upper=upper)[0]


def _solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    if left:
        return _solved(a, b, upper, unitriangular)
    return _solved(a.mT, b.mT, not upper, unitriangular).mT


def _int_mm(x: Tensor, y: Tensor) -> Tensor:
    """Return a product of bytes, whose sums are in int32."""
    return torch.mm(x.to(torch.int32), y.to(torch.int32))


def grouped_mm(x: Tensor, y: Tensor, offs: Tensor | None = None, *others: Any) -> Tensor:
    """Multiply each group of rows, which ends at one of `offs`, by a matrix; other rows are 0."""
    if x.dim() != 2 or y.dim() != 3 or offs is None or others:
        raise NotImplementedError("other forms than rows and matrices")
    rows, count = torch.arange(x.shape[0]), y.shape[0]
    group = (rows.unsqueeze(1) >= offs).sum(1)
    own = group.clamp(max=count - 1)
    if isinstance(x.shape[0], int) and x.shape[0] <= count:
        result = torch.bmm(x.unsqueeze(1), y.index_select(0, own)).squeeze(1)
    else:
        # A copy of a matrix for each row would take more memory.
        products = torch.bmm(x.expand(count, *x.shape), y)
        result = products.flatten(0, 1).index_select(0, own * x.shape[0] + rows)
    return torch.where((group < count).unsqueeze(1), result, 0)


# torch 2.14 no longer has it.
_CHOLESKY = (aten.cholesky.default,) if hasattr(aten, "cholesky") else ()
FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten._int_mm.default: _int_mm,
    aten._grouped_mm.default: grouped_mm,
    aten._linalg_det.default: _det,
    aten._linalg_slogdet.default: _slogdet,
    aten._linalg_solve_ex.default: _solve_ex,
    aten.linalg_inv_ex.default: _inv_ex,
    aten.linalg_cholesky_ex.default: _cholesky_ex,
    **dict.fromkeys(_CHOLESKY, _cholesky),
    aten.linalg_solve_triangular.default: _solve_triangular,
}
