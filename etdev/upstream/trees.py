"""Torch's pytrees, which flatten nested inputs and outputs."""

from torch.utils import _pytree as pytree

__all__ = ["pytree"]
