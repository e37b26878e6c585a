"""A session with a worker, which knows the files that the target has, and names what goes wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from blake3 import blake3

from etdev.errors import RunError
from etdev_tune.runners import faults
from etdev_tune.runners.commands import Command
from etdev_tune.runners.connection import Answer, Connection, Lost

# ExecuTorch takes ten times longer to load on a small board than on a desktop.
START_S = 180.0
# Beyond that many bytes, the files that were used longest ago are removed from the target.
_ROOM_BYTES = 2 << 30
_T = TypeVar("_T")


class Session:
    """A connection that is made at its first use, and again after it was lost.

    Args:
        command: Starts a Python on the target.
    """

    def __init__(self, command: Command) -> None:
        self.command = command
        self._connection: Connection | None = None
        # Sizes by name, the file that was used last at the end.
        self._pushed: dict[str, int] = {}

    def ask(self, order: Mapping[str, Any], during: str, limit_s: float) -> Answer:
        """Send an order; return the answer with its payload.

        Args:
            order: The order.
            during: The work in words, such as `running x.pte`.
            limit_s: The most time until the answer.

        Raises:
            RunError: The target can't be reached, doesn't answer, or answers with an error.
        """
        connection = self._connected()
        answer, payload = self._guarded(lambda: connection.ask(order, during, limit_s))
        faults.refuse(self.command, answer)
        return answer, payload

    def push(self, file: Path) -> str:
        """Send a file, unless the target has it; return its name there.

        Raises:
            RunError: The target can't be reached, or has no room for it.
        """
        with file.open("rb") as content:
            name = blake3(content.read()).hexdigest()[:32]
        connection = self._connected()
        if name in self._pushed:
            self._pushed[name] = self._pushed.pop(name)
            return name
        size = file.stat().st_size
        self._make_room(size)
        answer = self._guarded(lambda: connection.push(name, file))
        if answer.get("kind") == "disk" and self._pushed:
            self._make_room(_ROOM_BYTES)
            answer = self._guarded(lambda: connection.push(name, file))
        faults.refuse(self.command, answer)
        self._pushed[name] = size
        return name

    def close(self) -> None:
        """Disconnect; the worker removes what was pushed."""
        connection, self._connection = self._connection, None
        self._pushed.clear()
        if connection:
            connection.close()

    def _make_room(self, size: int) -> None:
        while self._pushed and size + sum(self._pushed.values()) > _ROOM_BYTES:
            name = next(iter(self._pushed))
            del self._pushed[name]
            self.ask({"order": "drop", "name": name}, "removing a file", START_S)

    def _connected(self) -> Connection:
        if self._connection:
            return self._connection
        try:
            self._connection = connection = Connection(self.command)
        except OSError as error:
            raise faults.no_command(self.command, error) from error
        faults.refuse(self.command, self._guarded(lambda: connection.greet(START_S)))
        return connection

    def _guarded(self, step: Callable[[], _T]) -> _T:
        """Take a step of an exchange; if it is interrupted, the connection can't be used again."""
        try:
            return step()
        except Lost as error:
            raise self._fault(error) from error
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise

    def _fault(self, error: Lost) -> RunError:
        connection, self._connection = self._connection, None
        self._pushed.clear()
        assert connection
        # A process that is silent says nothing more, so there is nothing to wait for.
        text = connection.close(patience_s=1.0 if error.late else 10.0)
        return faults.lost(self.command, error, connection.exit_code, text)
