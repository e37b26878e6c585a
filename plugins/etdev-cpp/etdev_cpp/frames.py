"""Frames: what etdev and its C++ runner send each other; sources/frames.h is the other end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import IO, Any, TypeVar

import torch
from attrs import define, field

T = TypeVar("T")
# ExecuTorch's ScalarType has the numbers of c10's.
DTYPES = {
    **dict(enumerate((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))),
    **dict(enumerate((torch.float16, torch.float32, torch.float64), start=5)),
    **dict(enumerate((torch.complex32, torch.complex64, torch.complex128), start=8)),
    11: torch.bool,
    15: torch.bfloat16,
    **dict(enumerate((torch.uint16, torch.uint32, torch.uint64), start=27)),
}
_CODES = {dtype: code for code, dtype in DTYPES.items()}


@define
class Writer:
    """Builder of a frame."""

    _parts: list[bytes] = field(factory=list)

    def number(self, kind: str, value: Any) -> Writer:
        """Add a number or a letter, of a kind that `struct` knows."""
        self._parts.append(struct.pack(f"={kind}", value))
        return self

    def text(self, value: str | bytes) -> Writer:
        data = value.encode() if isinstance(value, str) else value
        self.number("Q", len(data))._parts.append(data)
        return self

    def texts(self, values: Sequence[str]) -> Writer:
        self.number("Q", len(values))
        for value in values:
            self.text(value)
        return self

    def values(self, values: Sequence[Any]) -> Writer:
        """Add values that a method takes.

        Raises:
            TypeError: A value is neither a tensor nor a number.
        """
        self.number("Q", len(values))
        for value in values:
            self._value(value)
        return self

    def framed(self) -> bytes:
        """Return the frame behind its length."""
        data = b"".join(self._parts)
        return struct.pack("=Q", len(data)) + data

    def _value(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._tensor(value)
        elif value is None:
            self.number("c", b"n")
        elif isinstance(value, bool):
            self.number("c", b"b").number("?", value)
        elif isinstance(value, int):
            self.number("c", b"i").number("q", value)
        elif isinstance(value, float):
            self.number("c", b"d").number("d", value)
        else:
            raise TypeError(f"a {type(value).__name__} can't be an input")

    def _tensor(self, value: torch.Tensor) -> None:
        if value.dtype not in _CODES:
            raise TypeError(f"a tensor of {value.dtype} can't be an input")
        self.number("c", b"t").number("b", _CODES[value.dtype]).number("B", value.dim())
        for size in value.shape:
            self.number("q", size)
        for dim in order_of(value):
            self.number("B", dim)
        self.text(raw(value))


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
        kinds: dict[bytes, Callable[[], Any]] = {
            b"n": lambda: None,
            b"b": lambda: self.number("?"),
            b"i": lambda: self.number("q"),
            b"d": lambda: self.number("d"),
            b"s": self.text,
            b"t": self._tensor,
        }
        return kinds[self.number("c")]()

    def _tensor(self) -> torch.Tensor:
        dtype, rank = DTYPES[self.number("b")], self.number("B")
        sizes = [self.number("q") for _ in range(rank)]
        order = [self.number("B") for _ in range(rank)]
        data = self.blob()
        flat = (
            torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        )
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
