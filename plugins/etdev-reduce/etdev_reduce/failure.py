"""Failures of programs, and what makes two of them the same."""

from __future__ import annotations

import re
import traceback

from attrs import frozen

from etdev import EtdevError

RIGHT, WRONG, ERROR, CRASH, HANG, SLOW = "right", "wrong", "error", "crash", "hang", "slow"
# The case can't be made, eager PyTorch refuses it, or a module that the flow needs is missing.
INVALID = "invalid"
_LIBRARIES = ("/torch/", "/importlib", "/contextlib.py", "/functools.py", "<")


@frozen
class Failure:
    """The outcome of a program.

    Args:
        kind: One of the words above.
        stage: `export`, `lower`, `load` or `run`.
        identity: What has to stay the same, too: the type, the place and the pattern of an error,
            the signal, or in which way values are wrong.
        detail: What happened, in one line.
        cause: The first error that ExecuTorch's runtime logged, if an error or a crash has one.
        seconds: The time that it took.
        tolerance: For wrong values, the largest error that would be right, relative to the largest
            value of the output; for slow programs, how many times as slow would be.
        call: For wrong values, the number of the call among those of the program.
    """

    kind: str
    stage: str = ""
    identity: str = ""
    detail: str = ""
    cause: str = ""
    seconds: float = 0.0
    tolerance: float = 0.0
    call: int = 0

    def is_like(self, other: Failure) -> bool:
        """Return True if another program fails in the same way."""
        mine, theirs = ((f.kind, f.stage, f.identity) for f in (self, other))
        return mine == theirs

    @property
    def is_failure(self) -> bool:
        """Return True if something is wrong with the program."""
        return self.kind not in (RIGHT, INVALID)

    def __str__(self) -> str:
        at = f" while it is {_DOING.get(self.stage, self.stage)}" if self.stage else ""
        what = {WRONG: "wrong values", SLOW: "slow"}.get(self.kind, self.kind)
        return f"{what}{at}: {self.text}" if self.text else f"{what}{at}"

    @property
    def text(self) -> str:
        """The detail, with the cause."""
        return f"{self.detail} ({self.cause})" if self.cause else self.detail


_DOING = {"export": "exported", "lower": "lowered", "load": "loaded", "run": "run"}


def of_error(error: BaseException) -> Failure:
    """Return the failure that an exception is, without a stage."""
    root = error
    # An error of etdev's that tells of another one.
    while root.__cause__ is not None:
        root = root.__cause__
    # The cure is for those who know the model.
    said = f"{error.who}: {error.what}" if isinstance(error, EtdevError) else error
    text = f"{type(error).__name__}: {first_line(said)}"
    if isinstance(root, ImportError):
        return Failure(INVALID, detail=text)
    identity = f"{type(root).__name__} in {_place(root)}: {pattern(first_line(root))}"
    return Failure(ERROR, "", identity, text)


def first_line(error: object) -> str:
    """Return the first line of an error that says something."""
    lines = (line.strip() for line in str(error).splitlines())
    return plain(next(filter(None, lines), ""))[:300]


def plain(text: str) -> str:
    """Return a text without folders of this machine, and without names of temporary files."""
    text = re.sub(r"(?<![\w/.:])/(?:[^\s/'\"]+/)+", "", text)
    return re.sub(r"\btmp[a-z0-9_]{8}\b", "tmp", text)


def pattern(text: str) -> str:
    """Return a text without what changes as a case shrinks: numbers, sizes, names of nodes."""
    text = re.sub(r"[\[({]\s*('[^']*'(,\s*)?)+[\])}]", "()", text)
    text = re.sub(r"\b0x[0-9a-f]+", "#", text)
    text = re.sub(r"\b(\w+?)(_default|_tensor|_int)?(_\d+)?\b(?=[ ,:]|$)", r"\1", text)
    text = re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", text)
    return re.sub(r"#(?:\s*,\s*#)+,?", "#", text)


def _place(error: BaseException) -> str:
    """Return the innermost function outside of torch that raised an error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(part in f.filename for part in _LIBRARIES)]
    known = own or [*frames]
    return f"{known[-1].filename.rpartition('/')[2]}:{known[-1].name}" if known else ""
