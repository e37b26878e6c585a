"""Digests of the bytes of weights, each made once, and weights by their digests.

Backends hand most weights on as they are. The cache keeps the digest of such a buffer in place of
its bytes, which every program with the same key has itself.
"""

from __future__ import annotations

import io
from collections.abc import MutableSequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from attrs import define, field
from blake3 import blake3
from torch import Tensor

from etdev.delegate.cache.canonical import Unhashable
from etdev.upstream.fake_tensors import FakeTensor

# Below this, starting threads takes longer than hashing or copying.
_LARGE_BYTES = 1 << 20


@define(eq=False)
class Digests:
    """Digests of tensors, remembered as long as this lives."""

    # With the tensor, so that no other can get its id meanwhile.
    _known: dict[int, tuple[Any, str]] = field(factory=dict, init=False)
    _storages: dict[tuple[int, int], tuple[Tensor, str]] = field(factory=dict, init=False)
    _weights: dict[str, Tensor] = field(factory=dict, init=False)
    _sizes: set[int] = field(factory=set, init=False)
    # Large weights are copied in a thread while more is hashed and read.
    _thread: ThreadPoolExecutor | None = field(default=None, init=False)
    _due: list[tuple[MutableSequence[Any], int, Future[bytes]]] = field(factory=list, init=False)

    def of(self, name: str, value: object) -> str:
        """Return a text that only tensors of equal bytes, type and layout have.

        Raises:
            Unhashable: The value is not a tensor, or its bytes can't be read.
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

    def fill(self, buffers: MutableSequence[Any], place: int, digest: str) -> None:
        """Put the bytes of a weight into a list, at the latest in `settle`.

        Raises:
            ValueError: No weight has the digest.
        """
        if digest not in self._weights:
            raise ValueError(digest)
        weight = self._weights[digest]
        if weight.nbytes < _LARGE_BYTES:
            buffers[place] = bytes(_elements(weight).data)
            return
        self._thread = self._thread or ThreadPoolExecutor(1, "etdev-copies")
        self._due.append((buffers, place, self._thread.submit(_copied, weight)))

    def settle(self) -> None:
        """Wait until every list that was given to `fill` is complete.

        Raises:
            MemoryError: A weight doesn't fit into memory.
        """
        try:
            for buffers, place, copied in self._due:
                buffers[place] = copied.result()
        finally:
            self._due.clear()
            if self._thread:
                self._thread.shutdown(cancel_futures=True)
                self._thread = None

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
        raise Unhashable(f"{name} is a {type(value).__name__}, whose bytes aren't known")
    if value.is_meta or value.layout != torch.strided or value.is_quantized:
        raise Unhashable(f"{name} is a {value.layout} tensor on {value.device}")
    return value.detach().resolve_conj().resolve_neg()


def _elements(tensor: Tensor) -> Any:
    """Return the elements of a tensor in order, as bytes in an array."""
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _copied(weight: Tensor) -> bytes:
    """Return the bytes of a weight, copied by several threads without Python's lock."""
    elements = _elements(weight)
    made = io.BytesIO(bytes(elements.nbytes))
    with made.getbuffer() as buffer:
        torch.frombuffer(buffer, dtype=torch.uint8).copy_(torch.from_numpy(elements))
    return made.getvalue()


def _hash(data: Any) -> str:
    threads = blake3.AUTO if memoryview(data).nbytes >= _LARGE_BYTES else 1
    return str(blake3(data, max_threads=threads).hexdigest())
