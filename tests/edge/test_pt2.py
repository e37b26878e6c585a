"""PT2 files of strangers: what torch's loader would run is said, and nothing runs."""

import zipfile

import pytest
import torch
from hostile.strangers import Runs, changed, hostile, saved, saved_dynamic
from models import nets
from models.small import PAIR, AddMul
from shell import fails, invoke

from etdev import Lowerer
from etdev.edge.pt2 import _is_expression, code_in, load_pt2
from etdev.errors import SourceError

CURE = (
    "if you trust who made it, give --trust, or what torch.export.load makes of it; "
    "else export the model anew"
)


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory):
    return saved_dynamic(tmp_path_factory.mktemp("pt2"))


KINDS = {
    "example inputs": "the pickle data/sample_inputs/model.pt",
    "expression": "the expression ",
    "name": "the name ",
    "opaque constant": "the pickle data/constants/opaque_obj_0",
    "weight": "the pickle data/weights/weight_99",
}


@pytest.mark.parametrize("kind", KINDS)
def test_code_in_a_pt2_is_said_and_does_not_run(kind, dynamic, tmp_path):
    path, mark = hostile(kind, dynamic, tmp_path)
    with pytest.raises(SourceError) as caught:
        Lowerer([]).plan(path)
    assert str(caught.value).startswith(f"{path}: would run code when it is loaded: {KINDS[kind]}")
    assert str(caught.value).endswith(f"; {CURE}")
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["example inputs", "expression", "name"])
def test_with_trust_it_is_loaded_as_torch_does(kind, dynamic, tmp_path):
    path, mark = hostile(kind, dynamic, tmp_path)
    try:
        load_pt2(path, trust=True)
    except SourceError as error:
        assert "can't be loaded as a .pt2 file" in str(error)  # noqa: PT017
    # That the refusal was no false alarm.
    assert mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        *("eval('1')", "Symbol('os.system')", "(eval)(s0)", "Symbol('s')(s0)", "s0.free_symbols"),
        *("[s0]", "lambda: 1", "__import__", "Max(s0, exec('x'))", "1 .real", "s0; s1"),
        "a" * 99 + "$",
    ],
)  # fmt: skip
def test_only_calls_of_sympys_classes_are_expressions(text):
    assert not _is_expression(text)
    assert _is_expression("Max(2, Symbol('s0', integer=True) // 3) + 1.5*u0 < -1")


def test_a_native_library_is_said(dynamic, tmp_path):
    added = {"data/aotinductor/model/model.so": b"\x7fELF"}
    path = changed(dynamic, tmp_path / "net.pt2", {}, added)
    assert list(code_in(path)) == ["the native library data/aotinductor/model/model.so"]


def test_the_old_format_is_looked_into_too(tmp_path):
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("version", "1.0")
        file.writestr("serialized_state_dict.pt", saved({"w": torch.ones(2)}))
        file.writestr("serialized_constants.pt", saved({"c": Runs(tmp_path / "ran")}))
    assert list(code_in(path)) == ["the pickle serialized_constants.pt"]


def test_files_of_torch_hold_no_code(dynamic, tmp_path):
    assert list(code_in(dynamic)) == []
    for number, (module, inputs) in enumerate([nets.mlp(), nets.conv_net(), (AddMul(), PAIR)]):
        path = tmp_path / f"{number}.pt2"
        torch.export.save(torch.export.export(module.eval(), inputs), path)
        assert list(code_in(path)) == []


def test_the_command_says_it_and_takes_trust(dynamic, tmp_path, monkeypatch):
    path, mark = hostile("example inputs", dynamic, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert fails("plan", path).endswith(CURE)
    assert not mark.exists()
    invoke("plan --trust", path)
    assert mark.exists()
