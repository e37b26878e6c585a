"""A record of tensors, to find out afterwards if anything was written to them."""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen

from etdev.upstream.fake_tensors import write_count

# Number of places of a tensor whose bytes are compared.
_SAMPLES = 16
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@frozen(eq=False)
class TensorWas:
    """A tensor as it was.

    torch counts writes in place, but not those through `.data` or NumPy. Samples of the bytes show
    these, unless only few places are written.
    """

    value: Any
    version: int | None
    sample: bytes

    @classmethod
    def of(cls, value: Any) -> TensorWas:
        """Record a tensor as it is now; any other object counts by its identity."""
        return cls(value, _version(value), _sample(value))

    def is_still(self, value: Any) -> bool:
        """Return True if a tensor is this one, and nothing has been written to it."""
        return (
            value is self.value
            and _version(value) == self.version
            and _sample(value) == self.sample
        )


def _version(value: Any) -> int | None:
    # Objects such as engines aren't tensors.
    return write_count(value) if isinstance(value, torch.Tensor) else None


def _sample(value: Any) -> bytes:
    """Return bytes of a tensor in host memory, from places that are spread over it."""
    plain = type(value) in _PLAIN and value.device.type == "cpu" and not value.is_quantized
    if not plain or value.layout != torch.strided or not value.numel() or value.is_conj():
        return b""
    tensor = value.detach()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in steps)
    count = min(extent, _SAMPLES)
    places = tensor.as_strided((count,), (extent // count,), tensor.storage_offset())
    return bytes(places.clone().view(torch.uint8).numpy())
