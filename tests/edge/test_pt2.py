"""PT2 files of strangers: what torch's loader would run is said, and nothing runs."""

import io
import json
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from models import nets
from models.small import PAIR, AddMul
from shell import fails, invoke

from etdev import Lowerer
from etdev.edge.pt2 import code_in, load_pt2
from etdev.errors import SourceError

CURE = (
    "if you trust who made it, give --trust, or what torch.export.load makes of it; "
    "else export the model anew"
)


class Dynamic(torch.nn.Module):
    """Its sizes are expressions, and it has a branch."""

    def forward(self, x, *, other):
        branch = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
        return branch + other, x.new_ones(x.shape[0] * 7 // 3 + max(x.shape[0], 3))


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory):
    path = tmp_path_factory.mktemp("pt2") / "dynamic.pt2"
    size = {0: torch.export.Dim("batch", min=2, max=9)}
    shapes = {"x": size, "other": size}
    program = torch.export.export(
        Dynamic(), (torch.ones(4, 2),), {"other": torch.ones(4, 2)}, dynamic_shapes=shapes
    )
    torch.export.save(program, path)
    return path


class Runs:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def changed(source, target, changes, added=()):
    """A .pt2 with other members."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content, inner = old.read(name), name.partition("/")[2]
            # torch takes the name of the file for that of the folder in it.
            new.writestr(f"{target.stem}/{inner}", changes.get(inner, lambda c: c)(content))
        for name, content in dict(added).items():
            new.writestr(f"{target.stem}/{name}", content)
    return target


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def in_json(change):
    def altered(content):
        data = json.loads(content)
        change(data)
        return json.dumps(data).encode()

    return altered


def renamed(data, mark):
    """Give the first input of a graph a default value that is a call."""
    graph = data["graph_module"]["graph"]
    text = json.dumps(graph).replace('"x"', json.dumps(f"x=open({mark!r}, 'w')"))
    data["graph_module"]["graph"] = json.loads(text)


def hostile(kind, source, folder):
    """A .pt2 that would write a file, and that file."""
    mark, target = folder / "ran", folder / "hostile.pt2"
    if kind == "example inputs":
        inputs = {"data/sample_inputs/model.pt": lambda _: saved(((Runs(mark),), {}))}
        return changed(source, target, inputs), mark
    if kind == "expression":
        call = f"__import__('pathlib').Path({str(mark)!r}).touch() or Symbol('s17')"
        text = json.dumps(call)[1:-1].encode()

        def inject(content):
            start = content.index(b'"expr_str": "') + len(b'"expr_str": "')
            return content[:start] + text + content[content.index(b'"', start) :]

        return changed(source, target, {"models/model.json": inject}), mark
    if kind == "name":
        change = in_json(lambda data: renamed(data, str(mark)))
        return changed(source, target, {"models/model.json": change}), mark
    if kind == "opaque constant":
        added = {"data/constants/opaque_obj_0": pickle.dumps(Runs(mark))}
        config = in_json(lambda data: data["config"].update({"c": _payload("opaque_obj_0")}))
        path = "data/constants/model_constants_config.json"
        return changed(source, target, {path: config}, added), mark
    added = {"data/weights/weight_99": saved(Runs(mark))}
    config = in_json(lambda data: data["config"].update({"w": _payload("weight_99")}))
    path = "data/weights/model_weights_config.json"
    return changed(source, target, {path: config}, added), mark


def _payload(name):
    return {"path_name": name, "is_param": True, "use_pickle": True, "tensor_meta": None}


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
