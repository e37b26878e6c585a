"""Memory: a process that lowers again and again does not fill torch's registries."""

import gc
import linecache
import sys

import torch
from executorch.exir.backend.backend_details import BackendDetails
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
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
        "shapes of calls": len(FakeTensorMode.cache),
        "delegates": sum(isinstance(one, LoweredBackendModule) for one in gc.get_objects()),
    }


def test_torchs_registries_dont_grow_from_lowering_to_lowering():
    module = model()
    # What is made once per process.
    lower(module)
    lower(module)
    gc.collect()
    before, objects = sizes(), len(gc.get_objects())
    for _ in range(3):
        lower(module)
    gc.collect()
    assert sizes() == before
    # It was about 570 for each; what is left are caches of torch's.
    assert len(gc.get_objects()) - objects < 3 * 250


def test_what_others_compiled_keeps_its_source():
    module = torch.fx.symbolic_trace(nn.ReLU())
    name = list(_loader.eval_cache)[-1]
    lower(model())
    assert "relu" in _loader.eval_cache[name]
    assert "relu" in "".join(linecache.getlines(name))
    assert torch.equal(module(X[0]), X[0])
