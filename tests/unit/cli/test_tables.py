"""Tables: sizes in words, and rows that are counted instead of shown."""

from __future__ import annotations

import pytest
from attrs import evolve
from support.shell import cells

from etdev.cli import results, tables
from etdev.report import presenters
from etdev.schema.plan import Plan
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


def test_the_total_of_the_stages_is_shown(capsys):
    results.show([tables.stages({"export": 0.25, "plan": 1.5})])
    assert cells(capsys.readouterr().out) == [
        "stage seconds", "export 0.25", "plan 1.50", "total 1.75",
    ]  # fmt: skip


def test_the_rest_of_many_rows_is_counted(mlp_lowered, capsys):
    (method,) = mlp_lowered.plan.methods
    first, second = method.partitions
    many = [evolve(first, name=f"cpu_{index}") for index in range(20)]
    method = evolve(method, partitions=(*many, second), delegates=())
    results.show(presenters.sheets(Plan((method,))))
    rows = cells(capsys.readouterr().out)
    assert sum(row.startswith("cpu_") for row in rows) == 12
    assert "… and 9 more; --all shows them" in rows
