"""Golden plans, and an older ExecuTorch."""

from __future__ import annotations

import pytest

pytest_plugins = ["setting", "shared"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`, for planner/test_cases.py."""
    parser.addoption("--rewrite", action="store_true", help="Write the golden plans anew.")


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ExecuTorch that asks no partitioner what to change a program to, as 1.4."""
    from etdev.partitioner import ComposedPartitioner

    name = "transform_for_pre_decomposition"
    monkeypatch.setattr(ComposedPartitioner, name, lambda _, program: program)
