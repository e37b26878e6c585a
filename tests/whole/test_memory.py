"""Memory: a process that lowers again and again does not fill torch's registries."""

import linecache
import sys

import torch
from executorch.exir.backend.backend_details import BackendDetails
from torch import nn
from torch.fx.graph_module import _loader

from etdev import Lowerer

X = (torch.ones(2, 8),)


def model():
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()).eval()


def lower(module):
    Lowerer(["cpu"]).lower(module, X).to_executorch()


def sizes():
    return {
        "sources of graphs": len(_loader.eval_cache),
        "source lines": len(linecache.cache),
        "backends": len(BackendDetails.__subclasses__()),
        "modules": len(sys.modules),
    }


def test_torchs_registries_dont_grow_from_lowering_to_lowering():
    module = model()
    # What is made once per process.
    lower(module)
    before = sizes()
    for _ in range(3):
        lower(module)
    assert sizes() == before


def test_what_others_compiled_keeps_its_source():
    module = torch.fx.symbolic_trace(nn.ReLU())
    name = list(_loader.eval_cache)[-1]
    lower(model())
    assert "relu" in _loader.eval_cache[name]
    assert "relu" in "".join(linecache.getlines(name))
    assert torch.equal(module(X[0]), X[0])
