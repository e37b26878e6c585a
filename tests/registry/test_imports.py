"""Imports: those of a module are told while somebody listens, and nothing is left afterwards."""

import importlib
import sys

import pytest

from etdev.registry.imports import watched_imports


@pytest.fixture
def new(tmp_path, monkeypatch):
    """Import a module that is not imported yet."""
    monkeypatch.syspath_prepend(tmp_path)

    def new(name):
        (tmp_path / f"{name}.py").write_text("")
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.import_module(name)

    return new


def test_listeners_that_end_in_any_order_hear_no_more(new):
    first, second = [], []
    before = importlib._bootstrap._find_and_load
    one = watched_imports(lambda: None, first.append)
    other = watched_imports(lambda: None, second.append)
    one.__enter__()
    new("etdev_test_one")
    other.__enter__()
    one.__exit__(None, None, None)
    new("etdev_test_other")
    other.__exit__(None, None, None)
    new("etdev_test_late")
    assert (first, second) == (["etdev_test_one"], ["etdev_test_other"])
    assert importlib._bootstrap._find_and_load is before


def test_whoever_comes_between_lasts_and_nobody_is_told_twice(new, monkeypatch):
    told = []
    one = watched_imports(lambda: None, told.append)
    one.__enter__()
    watching = importlib._bootstrap._find_and_load
    foreign = lambda name, import_: watching(name, import_)  # noqa: E731
    monkeypatch.setattr(importlib._bootstrap, "_find_and_load", foreign)
    one.__exit__(None, None, None)
    assert importlib._bootstrap._find_and_load is foreign
    with watched_imports(lambda: None, told.append):
        new("etdev_test_between")
    assert told == ["etdev_test_between"]
    assert importlib._bootstrap._find_and_load is foreign
