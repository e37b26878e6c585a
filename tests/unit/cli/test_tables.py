"""Tables: sizes in words, and rows that are counted instead of shown."""

from __future__ import annotations

import pytest

from etdev.cli import tables
from etdev.schema.wording import size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "unbounded"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (92_369_715, "88.1 MiB"),
        (2**40, "1.0 TiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_sizes_are_written_for_people(count, text):
    assert size(count) == text


def test_the_slow_stages_are_told_with_the_total():
    seconds = {"export": 0.25, "split": 0.004, "plan": 1.5}
    assert tables.stages(seconds) == "took 1.8 s: plan 1.5, export 0.2"
