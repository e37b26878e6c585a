"""Messages of a client and its worker: values as torch.save writes them, behind their size."""

from __future__ import annotations

import io
from typing import IO, Any

import torch

_MARK = b"etdev-worker "


def send(stream: IO[bytes], value: Any) -> None:
    """Send a value of tensors, numbers, texts and collections."""
    file = io.BytesIO()
    torch.save(value, file)
    stream.write(b"\n%s%d\n" % (_MARK, file.tell()) + file.getvalue())
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Return the next value; what is between messages, such as a library prints, is skipped.

    Raises:
        EOFError: The stream ended.
    """
    for line in stream:
        if line.startswith(_MARK) and line.endswith(b"\n"):
            size = int(line.removeprefix(_MARK))
            data = stream.read(size)
            if len(data) == size:
                return torch.load(io.BytesIO(data), weights_only=True)
    raise EOFError
