"""Complex rotary embeddings in real numbers, since ExecuTorch has no kernels for complex ones."""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen
from torch.overrides import TorchFunctionMode


@frozen(eq=False)
class Complex:
    """Complex numbers as two tensors of one shape."""

    real: torch.Tensor
    imag: torch.Tensor

    def __mul__(self, other: Any) -> Complex:
        if not isinstance(other, Complex):
            return Complex(self.real * other, self.imag * other)
        return Complex(
            self.real * other.real - self.imag * other.imag,
            self.real * other.imag + self.imag * other.real,
        )

    def __getitem__(self, index: Any) -> Complex:
        return Complex(self.real[index], self.imag[index])

    def unsqueeze(self, dim: int) -> Complex:
        """Return them with a dimension of size 1 more."""
        return Complex(self.real.unsqueeze(dim), self.imag.unsqueeze(dim))

    def to(self, *target: Any) -> Complex:
        """Return them on a device."""
        return Complex(self.real.to(*target), self.imag.to(*target))

    @property
    def device(self) -> torch.device:
        """Their device."""
        return self.real.device

    @classmethod
    def __torch_function__(cls, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return the pairs that torch.view_as_real returns; a rotary embedding calls only that."""
        return (
            torch.stack([args[0].real, args[0].imag], -1)
            if func is torch.view_as_real
            else NotImplemented
        )


class RealRotary(TorchFunctionMode):
    """A mode in which torch.polar and torch.view_as_complex make pairs of real tensors."""

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch."""
        if func is torch.polar:
            size, angle = args
            return Complex(size * angle.cos(), size * angle.sin())
        if func is torch.view_as_complex:
            return Complex(*args[0].unbind(-1))
        return func(*args, **(kwargs or {}))
