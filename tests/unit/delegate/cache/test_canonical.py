"""The canonical form: two values have one text only if they are equal."""

import enum
import struct
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from attrs import define

from etdev.delegate.cache.canonical import Uncacheable, canonical

Pair = namedtuple("Pair", "a b")
Couple = namedtuple("Couple", "a b")


class Kind(enum.Enum):
    ONE = 1


class Other(enum.IntEnum):
    ONE = 1


@dataclass
class Point:
    x: int


@define(slots=False)
class Place:
    x: int


def nan(bits: int) -> float:
    return struct.unpack(">d", struct.pack(">Q", bits))[0]


def more(point: object) -> object:
    point.note = 1
    return point


UNLIKE = [
    *(1, True, 1.0, 1 + 0j, "1", b"1", None, "None"),
    *(0.0, -0.0, 0, False, complex(0.0, -0.0), complex(0.0, 0.0)),
    *(float("inf"), nan(0x7FF8000000000000), nan(0xFFF8000000000000), nan(0x7FF8000000000001)),
    *((1, 2), [1, 2], (1.0, 2), ((1,), 2), {1, 2}, torch.Size([1, 2]), Pair(1, 2), Couple(1, 2)),
    *({"a": 1, "b": 2}, {"b": 2, "a": 1}, OrderedDict(a=1, b=2), {"a": 1.0, "b": 2}),
    *(Kind.ONE, Other.ONE, Point(1), Point(2), more(Point(1)), Place(1), more(Place(1))),
    *(torch.float32, "torch.float32", torch.device("cpu"), torch.strided, torch.channels_last),
]


def test_unlike_values_have_unlike_texts():
    texts = [canonical(value) for value in UNLIKE]
    assert len(set(texts)) == len(texts)
    assert texts == [canonical(value) for value in UNLIKE]


class Word(str):
    pass


@pytest.mark.parametrize("value", [object(), print, torch.ones(1), Word("a"), type, [{1: {print}}]])
def test_what_has_no_text_is_named(value):
    with pytest.raises(Uncacheable, match="which has no canonical text"):
        canonical(value)


def test_the_order_of_a_set_does_not_count():
    assert canonical({"a", "b", "c"}) == canonical({"c", "b", "a"})
