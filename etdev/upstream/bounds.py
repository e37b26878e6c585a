"""Bounds of symbolic sizes, as torch's solver has them."""

from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = ["SymT", "ValueRanges", "bound_sympy", "symbol_is_type"]
