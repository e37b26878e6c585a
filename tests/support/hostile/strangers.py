"""Strangers' .pt2 files: each would write a file if it were loaded."""

from __future__ import annotations

import io
import json
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


def hostile(kind, source, folder):
    """A .pt2 that would write a file, and that file."""
    mark, target = folder / "ran", folder / "hostile.pt2"
    if kind == "example inputs":
        inputs = {"data/sample_inputs/model.pt": lambda _: saved(((Runs(mark),), {}))}
        return changed(source, target, inputs), mark
    added = {"data/weights/weight_99": saved(Runs(mark))}
    config = in_json(lambda data: data["config"].update({"w": _payload("weight_99")}))
    path = "data/weights/model_weights_config.json"
    return changed(source, target, {path: config}, added), mark


def _payload(name):
    return {"path_name": name, "is_param": True, "use_pickle": True, "tensor_meta": None}
