"""Digests: of the bytes of weights, each made once."""

from __future__ import annotations

from typing import Any

import torch
from attrs import define, field
from blake3 import blake3
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from etdev.delegate.cache.errors import Unhashable

# Below this, starting threads takes longer than hashing.
_THREADS_FROM_BYTES = 1 << 20


@define
class Digests:
    """Digests of tensors, remembered as long as this lives."""

    # With the tensor, so that no other can get its id meanwhile.
    _known: dict[int, tuple[Any, str]] = field(factory=dict)

    def of(self, name: str, value: object) -> str:
        """Text that only tensors of equal bytes, type and layout have.

        Raises:
            Unhashable: It is not a tensor, or one whose bytes can't be read.
        """
        if id(value) not in self._known:
            self._known[id(value)] = (value, _text(name, value))
        return self._known[id(value)][1]


def _text(name: str, value: object) -> str:
    plain = type(value) in (Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if not isinstance(value, Tensor) or not plain or isinstance(value, FakeTensor):
        raise Unhashable(f"{name} is a {type(value).__name__}, whose bytes aren't known")
    if value.is_meta or value.layout != torch.strided or value.is_quantized:
        raise Unhashable(f"{name} is a {value.layout} tensor on {value.device}")
    tensor = value.detach().resolve_conj().resolve_neg()
    storage = tensor.untyped_storage()
    parts = [
        f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.device}",
        f"{tensor.storage_offset()} of {storage.nbytes()}",
        _digest(tensor.cpu().contiguous()),
    ]
    if not tensor.is_contiguous():
        # ExecuTorch stores these as they lie, gaps included.
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        parts.append(_digest(whole.cpu()))
    return " ".join(parts)


def _digest(tensor: Tensor) -> str:
    data: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    threads = blake3.AUTO if data.nbytes >= _THREADS_FROM_BYTES else 1
    return blake3(data, max_threads=threads).hexdigest()
