"""The page of compatibility is what its script makes of the results."""

from __future__ import annotations

from pathlib import Path

from suites.compatibility.__main__ import RESULTS, table


def test_the_page_has_the_results():
    assert len(list(RESULTS.glob("*.json"))) > 5
    assert (Path(__file__).parents[2] / "plugins/COMPATIBILITY.md").read_text() == table()
