"""Completion: models and plugins, without torch."""

from __future__ import annotations

import pytest
from support.shell import MLP, succeeds

from etdev.cli.completion import plugin_names, source_names


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text("def model(): ...\ndef other(): ...\ndef _helper(): ...\n")
    (tmp_path / "net.pt2").write_bytes(b"")
    (tmp_path / "nets").mkdir()
    (tmp_path / "notes.txt").write_text("")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ne", ["net.pt2", "net.py:model", "net.py:other", "nets/"]),
        ("net.py:m", ["net.py:model"]),
        ("[", []),
    ],
)
def test_a_source_completes_to_files_and_functions(nets, text, found):
    assert [item.value for item in source_names(text)] == found


def test_plugins_complete_one_after_another():
    assert [item.value for item in plugin_names("cp")] == ["cpu"]
    assert [item.value for item in plugin_names("cpu,open")] == ["cpu,openvino"]


def test_plugins_may_be_one_list():
    plans = [
        succeeds(f"plan {MLP} {o} --json")
        for o in ("--plugin cpu,openvino", "--plugin cpu --plugin openvino")
    ]
    assert plans[0] == plans[1]
