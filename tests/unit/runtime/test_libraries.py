"""The budget of libraries, which etdev-cpp counts: without it, an error before anything is done."""

import pytest

from etdev import Lowerer
from etdev.errors import PluginError, install_hint
from etdev.registry import extensions


def test_a_budget_of_libraries_names_what_to_install(monkeypatch):
    monkeypatch.setattr(extensions, "candidates", lambda group: {})
    with pytest.raises(PluginError) as caught:
        Lowerer([], budget={"runtime_bytes": 1}).lower("gone.pt2")
    hint = install_hint("etdev-cpp")
    assert str(caught.value) == f"runtime_bytes: not installed; {hint}"
