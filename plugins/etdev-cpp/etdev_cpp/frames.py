"""Frames: what etdev and its C++ runner send each other; sources/frames.h is the other end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, TypeVar

import torch
from attrs import define

from etdev.schema import dtypes

T = TypeVar("T")
# ExecuTorch's ScalarType has the numbers of c10's.
DTYPES = {dtype.code: getattr(torch, dtype.name) for dtype in dtypes.DTYPES}
_CODES = {dtype: code for code, dtype in DTYPES.items()}


# The letter of a value, and the number behind it as `struct` has it.
_NUMBERS = {type(None): (b"n", ""), bool: (b"b", "?"), int: (b"i", "q"), float: (b"d", "d")}


def number(kind: str, *values: Any) -> bytes:
    """Return numbers and letters, of kinds that `struct` knows."""
    return struct.pack(f"={kind}", *values)


def text(value: str | bytes) -> Iterator[bytes]:
    data = value.encode() if isinstance(value, str) else value
    yield number("Q", len(data))
    yield data


def several(values: Sequence[T], one: Callable[[T], Iterator[bytes]]) -> Iterator[bytes]:
    """Yield a list, each item by a function."""
    yield number("Q", len(values))
    for value in values:
        yield from one(value)


def value(given: Any) -> Iterator[bytes]:
    """Yield a value that a method takes.

    Raises:
        TypeError: It is neither a tensor nor a number.
    """
    if isinstance(given, torch.Tensor):
        if given.dtype not in _CODES:
            raise TypeError(f"a tensor of {given.dtype} can't be an input")
        yield number("cbB", b"t", _CODES[given.dtype], given.dim())
        yield number(f"{given.dim()}q{given.dim()}B", *given.shape, *order_of(given))
        yield from text(raw(given))
        return
    known = next((own for kind, own in _NUMBERS.items() if isinstance(given, kind)), None)
    if not known:
        raise TypeError(f"a {type(given).__name__} can't be an input")
    letter, code = known
    yield number(f"c{code}", letter, *([given] if code else []))


def framed(parts: Iterable[bytes]) -> bytes:
    """Return a frame behind its length."""
    data = b"".join(parts)
    return number("Q", len(data)) + data


@define
class Reader:
    """Parser of a frame."""

    _data: bytes
    _place: int = 0

    @classmethod
    def next(cls, stream: IO[bytes]) -> Reader:
        """Return the next frame of a stream.

        Raises:
            EOFError: The stream ended.
        """
        size = _exactly(stream, 8)
        return cls(_exactly(stream, struct.unpack("=Q", size)[0]))

    def number(self, kind: str) -> Any:
        (value,) = struct.unpack(f"={kind}", self._take(struct.calcsize(f"={kind}")))
        return value

    def blob(self) -> bytes:
        return self._take(self.number("Q"))

    def text(self) -> str:
        return self.blob().decode(errors="replace")

    def texts(self) -> list[str]:
        return self.several(self.text)

    def several(self, one: Callable[[], T]) -> list[T]:
        """Read a list, each item with a function."""
        return [one() for _ in range(self.number("Q"))]

    def value(self) -> Any:
        """Read a value that a method returned."""
        letter = self.number("c")
        if letter == b"t":
            return self._tensor()
        if letter == b"s":
            return self.text()
        code = dict(_NUMBERS.values())[letter]
        return self.number(code) if code else None

    def _tensor(self) -> torch.Tensor:
        dtype, rank = DTYPES[self.number("b")], self.number("B")
        sizes = [self.number("q") for _ in range(rank)]
        order = [self.number("B") for _ in range(rank)]
        data = bytearray(self.blob())
        # torch.frombuffer takes no empty buffer.
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        dense = flat.reshape([sizes[dim] for dim in order])
        return dense.permute([order.index(dim) for dim in range(rank)])

    def _take(self, size: int) -> bytes:
        self._place += size
        return self._data[self._place - size : self._place]


def order_of(value: torch.Tensor) -> list[int]:
    """Return the dimensions of a dense tensor from the outermost in memory to the innermost."""
    strides, sizes = value.stride(), value.shape
    # Of two dimensions with one stride, the inner one has the size 1.
    return sorted(range(value.dim()), key=lambda dim: (-strides[dim], sizes[dim] == 1))


def raw(value: torch.Tensor) -> bytes:
    """Return the values of a dense tensor as they lie in memory."""
    flat: Any = value.detach().permute(order_of(value)).contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
