"""PT2 files of strangers: a pickle in one that would run code is refused, and nothing runs."""

import os

import pytest
import torch
from support.hostile.strangers import hostile, saved_dynamic
from support.models import nets
from support.models.small import PAIR, AddMul
from support.shell import fails, invoke

from etdev import Lowerer
from etdev.edge.source import load_pt2
from etdev.errors import SourceError

CURE = "if you trust who made it, give --trust, or what torch.export.load makes of it"
KINDS = ("example inputs", "weight")


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory):
    return saved_dynamic(tmp_path_factory.mktemp("pt2"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickle_in_a_pt2_does_not_run(kind, dynamic, tmp_path):
    path, mark = hostile(kind, dynamic, tmp_path)
    before = dict(os.environ)
    with pytest.raises(SourceError) as caught:
        Lowerer([]).plan(path)
    assert str(caught.value).startswith(f"{path}: holds a pickle that may run code (")
    assert str(caught.value).endswith(f"; {CURE}")
    assert not mark.exists()
    assert os.environ == before


@pytest.mark.parametrize("kind", KINDS)
def test_with_trust_it_is_loaded_as_torch_does(kind, dynamic, tmp_path):
    path, mark = hostile(kind, dynamic, tmp_path)
    try:
        load_pt2(path, trust=True)
    except SourceError as error:
        assert "can't be loaded as a .pt2 file" in str(error)  # noqa: PT017
    # That the refusal was no false alarm.
    assert mark.exists()


def test_files_of_torch_are_loaded(dynamic, tmp_path):
    load_pt2(dynamic)
    for number, (module, inputs) in enumerate([nets.mlp(), nets.conv_net(), (AddMul(), PAIR)]):
        path = tmp_path / f"{number}.pt2"
        torch.export.save(torch.export.export(module.eval(), inputs), path)
        load_pt2(path)


def test_the_command_says_it_and_takes_trust(dynamic, tmp_path, monkeypatch):
    path, mark = hostile("example inputs", dynamic, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert fails("plan", path).endswith(CURE)
    assert not mark.exists()
    invoke("plan --trust", path)
    assert mark.exists()
