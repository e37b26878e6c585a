"""Digests of the bytes of weights, each made once, and weights by their digests.

Backends hand most weights on as they are. The cache keeps the digest of such a buffer in place of
its bytes, which every program with the same key has itself.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import define, field
from blake3 import blake3
from torch import Tensor

from etdev.delegate.cache.canonical import Uncacheable
from etdev.upstream.fake_tensors import FakeTensor

# Below this, starting threads takes longer than hashing.
_LARGE_BYTES = 1 << 20


@define(eq=False)
class Digests:
    """Digests of tensors, remembered as long as this lives."""

    # With the tensor, so that no other can get its id meanwhile.
    _known: dict[int, tuple[Any, str]] = field(factory=dict, init=False)
    _storages: dict[tuple[int, int], tuple[Tensor, str]] = field(factory=dict, init=False)
    _weights: dict[str, Tensor] = field(factory=dict, init=False)
    _sizes: set[int] = field(factory=set, init=False)

    def of(self, name: str, value: object) -> str:
        """Return a text that only tensors of equal bytes, type and layout have.

        Raises:
            Uncacheable: The value is not a tensor, or its bytes can't be read.
        """
        if id(value) not in self._known:
            self._known[id(value)] = (value, self._text(name, value))
        return self._known[id(value)][1]

    def find(self, data: bytes) -> str | None:
        """Return the digest of some bytes if they are those of a weight, else None."""
        if not data or len(data) not in self._sizes:
            return None
        digest = _hash(data)
        return digest if digest in self._weights else None

    def content(self, digest: str) -> bytes:
        """Return the bytes of the weight with a digest, or raise KeyError without one."""
        return bytes(_elements(self._weights[digest]).data)

    def _text(self, name: str, value: Any) -> str:
        tensor = _plain(name, value)
        storage = tensor.untyped_storage()
        try:
            parts = [
                f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.device}",
                f"{value.requires_grad} {tensor.storage_offset()} of {storage.nbytes()}",
                self._digest(tensor),
            ]
        except (RuntimeError, TypeError) as error:
            what = f"{name} is a tensor of {tensor.dtype}, whose bytes can't be read"
            raise Uncacheable(what) from error
        if not tensor.is_contiguous() or storage.nbytes() != tensor.nbytes:
            # Some backends and ExecuTorch store these as they lie, gaps included.
            parts.append(self._whole(tensor, storage))
        return " ".join(parts)

    def _whole(self, tensor: Tensor, storage: torch.UntypedStorage) -> str:
        """Return the digest of a storage, which many tensors may be parts of."""
        place = storage.data_ptr(), storage.nbytes()
        if place not in self._storages:
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self._storages[place] = (whole, self._digest(whole))
        return self._storages[place][1]

    def _digest(self, tensor: Tensor) -> str:
        elements = _elements(tensor)
        digest = _hash(elements)
        self._weights.setdefault(digest, tensor)
        self._sizes.add(elements.nbytes)
        return digest


def _plain(name: str, value: Any) -> Tensor:
    plain = type(value) in (Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if not isinstance(value, Tensor) or not plain or isinstance(value, FakeTensor):
        raise Uncacheable(f"{name} is a {type(value).__name__}, whose bytes aren't known")
    if value.is_meta or value.layout != torch.strided or value.is_quantized:
        raise Uncacheable(f"{name} is a {value.layout} tensor on {value.device}")
    return value.detach().resolve_conj().resolve_neg()


def _elements(tensor: Tensor) -> Any:
    """Return the elements of a tensor in order, as bytes in an array."""
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _hash(data: Any) -> str:
    threads = blake3.AUTO if memoryview(data).nbytes >= _LARGE_BYTES else 1
    return str(blake3(data, max_threads=threads).hexdigest())
