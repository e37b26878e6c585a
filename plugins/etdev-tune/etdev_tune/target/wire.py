"""The wire: orders come in, answers go out, each a line of JSON and the bytes it announces."""

from __future__ import annotations

import errno
import json
import os
import select
from typing import Any

# A client whose machine vanished never closes the connection.
_IDLE_S = 6 * 3600.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def refusal(error: OSError) -> dict[str, Any]:
    """An error of the system as an answer."""
    kind = "disk" if error.errno in _FULL else "system"
    return {"kind": kind, "error": error.strerror or str(error)}


def wire(answer: dict[str, Any], *payload: bytes) -> bytes:
    """An answer and what follows it, as it is sent."""
    head = json.dumps({**answer, "payload": [len(part) for part in payload]})
    return b"".join([head.encode(), b"\n", *payload])


class Client:
    """The other end of the connection."""

    def __init__(self, orders: int, answers: int) -> None:
        self.orders = orders
        self.answers = answers
        self._rest = b""

    def send(self, data: bytes) -> None:
        """Send all of some bytes; EOFError if nothing takes them."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.answers, view) :]
        except BrokenPipeError:
            raise EOFError from None

    def order(self) -> Any:
        """The next order; EOFError if there is none."""
        while b"\n" not in self._rest:
            self._rest += self._more()
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def store(self, name: str, size: int) -> None:
        """Write what follows an order to a file, whole or not at all; read it all in any case."""
        failure: OSError | None = None
        part = name + ".part"
        file = -1
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            failure = error
        while size:
            chunk = self._rest or self._more()
            self._rest, chunk = chunk[size:], chunk[:size]
            size -= len(chunk)
            try:
                while chunk and not failure:
                    chunk = chunk[os.write(file, chunk) :]
            except OSError as error:
                failure = error
                # Room for whatever is asked for next.
                os.truncate(part, 0)
        if file >= 0:
            os.close(file)
        if failure:
            raise failure
        os.replace(part, name)

    def _more(self) -> bytes:
        ready, _, _ = select.select([self.orders], [], [], _IDLE_S)
        chunk = os.read(self.orders, 1 << 20) if ready else b""
        if not chunk:
            raise EOFError
        return chunk
