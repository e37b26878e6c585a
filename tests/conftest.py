"""Golden plans."""

from __future__ import annotations

import pytest

pytest_plugins = ["setting", "shared"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`, for planner/test_cases.py."""
    parser.addoption("--rewrite", action="store_true", help="Write the golden plans anew.")
