"""Shortcuts are off by wish, and where torch or ExecuTorch lacks what they need; bytes stay."""

import logging

import pytest
import torch
from support.models import decoders, nets
from torch import nn

from etdev import Lowerer
from etdev.edge.functional import OWN_WRITES
from etdev.upstream.shortcuts.collector import COLLECTOR
from etdev.upstream.shortcuts.decompositions import DECOMPOSITIONS
from etdev.upstream.shortcuts.delegates import DELEGATES
from etdev.upstream.shortcuts.graphs import INTERPRETED, LAZY
from etdev.upstream.shortcuts.leftovers import LEFTOVERS
from etdev.upstream.shortcuts.passes import PASSES
from etdev.upstream.shortcuts.switch import PLAIN, Shortcut

SHORTCUTS = (COLLECTOR, DECOMPOSITIONS, DELEGATES, INTERPRETED, LAZY, LEFTOVERS, OWN_WRITES, PASSES)


def in_place():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3)
    return nn.Sequential(*layers).eval(), (torch.randn(1, 3, 8, 8),)


MODELS = {
    "mlp": nets.mlp,
    "in place": in_place,
    "cond": decoders.cond,
    "int8": nets.quantised_conv_net,
    "decoder": decoders.cached_decoder,
}


def lowered(name):
    torch.manual_seed(0)
    with torch.no_grad():
        program = torch.export.export(*MODELS[name]())
    result = Lowerer(["cpu"], cache=False).lower(program)
    return bytes(result.to_executorch().buffer), result.plan


@pytest.mark.slice("mlp", "in place", "decoder")
@pytest.mark.parametrize("name", MODELS)
def test_bytes_and_plans_are_those_of_upstreams_own_way(name, monkeypatch):
    quick, plan = lowered(name)
    monkeypatch.setenv(PLAIN, "1")
    assert not any(shortcut.is_on for shortcut in SHORTCUTS)
    plain, own_plan = lowered(name)
    assert plain == quick
    # torch names the nodes of a traced program after other ops: `relu` for `relu_`.
    if name != "in place":
        assert own_plan == plan


@pytest.mark.parametrize("shortcut", SHORTCUTS, ids=lambda shortcut: shortcut.name)
def test_this_torch_and_executorch_have_what_shortcuts_need(shortcut):
    assert shortcut.missing == ""


def test_a_missing_name_takes_time_and_no_release(monkeypatch, caplog):
    quick, _ = lowered("mlp")
    for shortcut in SHORTCUTS:
        monkeypatch.setattr(shortcut, "needs", (*shortcut.needs, "torch._moved.function"))
        # What is known of this version is kept in a slot.
        monkeypatch.delattr(shortcut, "missing", raising=False)
    with caplog.at_level(logging.DEBUG, "etdev"):
        slow, _ = lowered("mlp")
    assert slow == quick
    assert (
        caplog.messages.count(f"{PASSES.name}: off, since there is no torch._moved.function") == 1
    )
    for shortcut in SHORTCUTS:
        del shortcut.missing


def test_any_text_in_the_environment_is_a_wish(monkeypatch):
    shortcut = Shortcut("nothing")
    monkeypatch.setenv(PLAIN, "")
    assert shortcut.is_on
    monkeypatch.setenv(PLAIN, "yes")
    assert not shortcut.is_on
