"""Errors that a plugin raises: the command line shows the plugin's own line."""

from __future__ import annotations

import sys

import pytest
from support.shell import MLP, invoke
from support.shell.distributions import put

FAULTY = """
import torch
from etdev import Claim, Group, hookimpl

class Plugin:
    @hookimpl
    def claim_nodes(self, program):
        return match(program)

def match(program):
    raise KeyError("aten.add")
"""
IN_TORCH = FAULTY.replace('raise KeyError("aten.add")', "torch.ones(2).view(3)")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (FAULTY, "KeyError: 'aten.add'"),
        (IN_TORCH, "RuntimeError: shape '[3]' is invalid"),
    ],
)
def test_the_line_of_the_plugin_is_shown_and_how_to_see_more(here, monkeypatch, source, what):
    monkeypatch.syspath_prepend(here)
    put(here, "etdev-faulty", source, {"etdev": {"faulty": "{module}:Plugin"}})
    done = invoke(f"plan {MLP} --plugin faulty")
    sys.modules.pop("etdev_faulty", None)
    assert (done.exit_code, done.stdout) == (1, "")
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"error: faulty: claim_nodes raised {what}")
    # The plugin's innermost line, whichever line of torch it led to.
    place = f"{here.name}/etdev_faulty.py:11"
    assert line.endswith(f" for method 'forward'; raised at {place}, --debug shows the traceback")
    assert "Traceback" not in done.stderr
