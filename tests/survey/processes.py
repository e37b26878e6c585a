"""Processes that answer questions, and may crash or hang."""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, field


class DiedError(Exception):
    """A process crashed, or took too long to answer."""


@define(eq=False)
class Process:
    """A process that runs a file of this folder; it begins with the first question.

    Args:
        script: The file's name. It reads questions from standard input, pickled, and answers them
            on standard output, as `answering` does.
        timeout_s: It is ended when it takes longer to answer.
    """

    script: str
    timeout_s: float = 900.0
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def ask(self, question: Any) -> Any:
        """Return the answer to a question.

        Raises:
            DiedError: The process is no more; another one answers the next question.
        """
        if self._process is None:
            command = [sys.executable, Path(__file__).with_name(self.script)]
            pipe, null = subprocess.PIPE, subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null)
        try:
            pickle.dump(question, self._process.stdin)
            self._process.stdin.flush()
            ready, _, _ = select.select([self._process.stdout], [], [], self.timeout_s)
            if not ready:
                self.close()
                raise DiedError(f"hung for {self.timeout_s:g} s")
            return pickle.load(self._process.stdout)
        except (EOFError, OSError):
            raise DiedError(f"crashed with code {self.close()}") from None

    def close(self) -> int:
        """End the process; return the code that it ended with, if by itself."""
        process, self._process = self._process, None
        if process is None:
            return 0
        # It may be gone, with a question unread.
        with suppress(OSError):
            process.stdin.close()
        try:
            return process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def answering(answer: Any) -> None:
    """Answer questions until there are no more; what is printed goes to standard error."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            question = pickle.load(questions)
        except EOFError:
            return
        pickle.dump(answer(question), answers)
        answers.flush()
