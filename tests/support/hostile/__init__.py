"""Hostile files: what hypothesis makes of good ones, and how a reader has to take them.

`make test` tries a few of each, `make fuzz` as many as ETDEV_FUZZ says.
"""

from __future__ import annotations

import copy
import json
import os
import resource
import struct
import time
from collections.abc import Callable
from typing import Any

from click.testing import Result
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from etdev.errors import EtdevError

EXAMPLES = int(os.environ.get("ETDEV_FUZZ", "0"))
# What one small file may cost: far more than any good one does.
_SECONDS, _BYTES = 5.0, 500 << 20

NUMBERS = (
    *(0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 16, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF),
)
TEXTS = (
    *("", "\x1b[31m", "[/red]", "a\nb", "\u202e", "\ud800", "\x00", "é", "*" * 300, "../x", "nan"),
)


def budget(few: int) -> Callable[[Any], Any]:
    """How many examples a test tries: few, unless ETDEV_FUZZ says how many."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=EXAMPLES or few,
        deadline=None,
        suppress_health_check=checks,
        # `make test` says the same each time; `make fuzz` looks further.
        derandomize=not EXAMPLES,
        database=None,
    )


def taken(read: Callable[[], object]) -> None:
    """Read something; it may be an EtdevError, but nothing else, and neither long nor large."""
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusals = []
    try:
        read()
    except EtdevError as error:
        refusals.append(error)
    assert all(error.who and error.what and len(str(error)) < 20_000 for error in refusals)
    assert time.process_time() - start < _SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < _BYTES


def tells(done: Result) -> None:
    """What a command must do: end by itself with one of its codes, and nothing of Python's."""
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (0, 1, 2)
    for text in (done.stdout, done.stderr):
        assert "Traceback" not in text
        assert "internal error" not in text, text
        assert not set(text) & {"\x1b", "\u202e", "\x00"}


@st.composite
def damaged(draw: Callable[[Any], Any], good: bytes, changes: int = 4) -> bytes:
    """Bytes with a few changes: words, bytes, pieces cut out, moved, or written twice."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, changes))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["word", "word", "near", "byte", "cut", "twice", "end"])):
            case "word":
                place -= place % 4
                data[place : place + 4] = struct.pack("<I", draw(st.sampled_from(NUMBERS)))
            case "near":
                # An offset or a length that is slightly off.
                place -= place % 4
                (word,) = struct.unpack("<I", data[place : place + 4].ljust(4, b"\0"))
                word = (word + draw(st.integers(-64, 64))) % (1 << 32)
                data[place : place + 4] = struct.pack("<I", word)
            case "byte":
                data[place] = draw(st.integers(0, 255))
            case "cut":
                del data[place : place + draw(st.integers(1, 64))]
            case "twice":
                data[place:place] = data[place : place + draw(st.integers(1, 64))]
            case "end":
                del data[place:]
    return bytes(data)


_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.sampled_from([10**400, -1, float("nan"), float("inf"), 1e308]),
    st.sampled_from(TEXTS),
    st.text(max_size=8),
)
VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def altered(draw: Callable[[Any], Any], good: Any) -> Any:
    """Plain data with a few values replaced, keys dropped or added, and items repeated."""
    data = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 3))):
        data = _altered(draw, data)
    return data


def _altered(draw: Callable[[Any], Any], data: Any) -> Any:
    if not isinstance(data, (dict, list)) or not data or draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    key = draw(st.sampled_from(keys))
    match draw(st.sampled_from(["in", "in", "in", "in", "drop", "add", "twice"])):
        case "in":
            data[key] = _altered(draw, data[key])
        case "drop":
            del data[key]
        case "add" if isinstance(data, dict):
            data[draw(st.sampled_from(TEXTS))] = draw(VALUES)
        case "twice" if isinstance(data, list):
            data.append(copy.deepcopy(data[key]))
    return data


def as_json(data: Any) -> str:
    """JSON with what its grammar doesn't allow, too: NaN and infinities."""
    return json.dumps(data)
