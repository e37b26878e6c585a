"""Golden plans."""

from __future__ import annotations

import pytest

pytest_plugins = ["support.setting", "support.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`, for unit/planner/test_cases.py."""
    parser.addoption("--rewrite", action="store_true", help="Write the golden plans anew.")
