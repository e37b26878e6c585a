"""Strangers' .pt2 files: each would write a file if it were loaded."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import torch


class Dynamic(torch.nn.Module):
    """Its sizes are expressions, and it has a branch."""

    def forward(self, x, *, other):
        branch = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
        return branch + other, x.new_ones(x.shape[0] * 7 // 3 + max(x.shape[0], 3))


def saved_dynamic(folder):
    """A sound .pt2 of it."""
    path = folder / "dynamic.pt2"
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
