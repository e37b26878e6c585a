"""The setting and fixtures of all tests, and an option to write what they compare with."""

from __future__ import annotations

import pytest

pytest_plugins = ["support.setting", "support.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite`, for golden plans, shapes of documents and RELIABILITY.md."""
    parser.addoption("--rewrite", action="store_true", help="Write anew what is compared.")
