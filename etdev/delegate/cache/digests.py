"""Digests: of the bytes of weights, each made once; and weights by their digests.

Backends hand most weights on as they are. The cache keeps the digest of such a buffer in place of
its bytes, which every program with the same key has itself.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from attrs import define, field
from blake3 import blake3
from torch import Tensor

from etdev.delegate.cache.faithful import Unhashable
from etdev.upstream.fake_tensors import FakeTensor

# Below this, starting threads takes longer than hashing or copying.
SEVERAL_THREADS_FROM_BYTES = 1 << 20


@define
class Digests:
    """Digests of tensors, remembered as long as this lives."""

    # With the tensor, so that no other can get its id meanwhile.
    _known: dict[int, tuple[Any, str]] = field(factory=dict)
    _storages: dict[tuple[int, int], tuple[Tensor, str]] = field(factory=dict)
    _weights: dict[str, Tensor] = field(factory=dict)
    _sizes: set[int] = field(factory=set)

    def of(self, name: str, value: object) -> str:
        """Text that only tensors of equal bytes, type and layout have.

        Raises:
            Unhashable: It is not a tensor, or one whose bytes can't be read.
        """
        if id(value) not in self._known:
            self._known[id(value)] = (value, self._text(name, value))
        return self._known[id(value)][1]

    def find(self, data: bytes) -> str | None:
        """The digest of some bytes if a weight has the same; None if none has."""
        if not data or len(data) not in self._sizes:
            return None
        digest = _hash(data)
        return digest if digest in self._weights else None

    def size(self, digest: str) -> int:
        """How many bytes the weight has that has a digest.

        Raises:
            ValueError: No weight has it.
        """
        return int(self._weight(digest).nbytes)

    def content(self, digest: str) -> bytes:
        """The bytes of the weight that has a digest.

        Raises:
            ValueError: No weight has it.
        """
        return _copied(_elements(self._weight(digest)))

    def _weight(self, digest: str) -> Tensor:
        if digest not in self._weights:
            raise ValueError(digest)
        return self._weights[digest]

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
            raise Unhashable(what) from error
        if not tensor.is_contiguous() or storage.nbytes() != tensor.nbytes:
            # Some backends and ExecuTorch store these as they lie, gaps included.
            parts.append(self._whole(tensor, storage))
        return " ".join(parts)

    def _whole(self, tensor: Tensor, storage: torch.UntypedStorage) -> str:
        """The digest of a storage, which many tensors may be parts of."""
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
        raise Unhashable(f"{name} is a {type(value).__name__}, whose bytes aren't known")
    if value.is_meta or value.layout != torch.strided or value.is_quantized:
        raise Unhashable(f"{name} is a {value.layout} tensor on {value.device}")
    return value.detach().resolve_conj().resolve_neg()


def _elements(tensor: Tensor) -> Any:
    """The elements of a tensor in order, as bytes in an array."""
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _copied(elements: Any) -> bytes:
    """Bytes of an array, as `tobytes` makes them, which holds Python's lock and uses one thread."""
    if elements.nbytes < SEVERAL_THREADS_FROM_BYTES:
        return bytes(elements.data)
    made = io.BytesIO(bytes(elements.nbytes))
    with made.getbuffer() as view:
        torch.frombuffer(view, dtype=torch.uint8).copy_(torch.from_numpy(elements))
    return made.getvalue()


def _hash(data: Any) -> str:
    threads = blake3.AUTO if memoryview(data).nbytes >= SEVERAL_THREADS_FROM_BYTES else 1
    return str(blake3(data, max_threads=threads).hexdigest())
