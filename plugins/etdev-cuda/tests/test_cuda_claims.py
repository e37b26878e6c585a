"""The CUDA plugin against ExecuTorch's own CudaPartitioner: the same nodes, the same constants."""

import functools
from itertools import chain

import pytest
import torch
from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import get_lowered_submodules
from models import decoders, nets
from toys.aoti import NEEDS_1_5

from etdev import Lowerer

pytestmark = pytest.mark.usefixtures("aoti")
CONTROL_FLOW = {
    "cond": decoders.cond,
    "while_loop": decoders.while_loop,
    "map": decoders.mapped,
    "scan": decoders.scanned,
}
MODELS = {
    "mlp": nets.mlp,
    "conv net": nets.conv_net,
    "quantised conv net": nets.quantised_conv_net,
    "cached llama": functools.partial(nets.cached_llama, layers=1),
    "attention": decoders.attention,
    "cached decoder": decoders.cached_decoder,
    "shared constant": decoders.shared_constant,
}


def delegated(program):
    """Names of nodes and of constants in each delegate."""
    modules = [module for _, module, _ in get_lowered_submodules(program.graph_module)]
    inner = [module.original_module for module in modules]
    nodes = [sorted(n.name for n in p.graph.nodes if n.op != "output") for p in inner]
    return nodes, [sorted(p.state_dict.keys() | p.constants.keys()) for p in inner]


@pytest.mark.parametrize(
    "model",
    [
        *(pytest.param(model, id=name) for name, model in MODELS.items()),
        *(pytest.param(model, id=name, marks=NEEDS_1_5) for name, model in CONTROL_FLOW.items()),
    ],
)
def test_alone_it_takes_what_cuda_partitioner_takes(model):
    module, inputs = model()
    with torch.no_grad():
        first, second = (torch.export.export(module, inputs) for _ in range(2))
        # ExecuTorch's own path traces caches wrongly with gradients on.
        theirs = to_edge_transform_and_lower(first, partitioner=[CudaPartitioner([])])
    ours = Lowerer(["cuda"]).lower(second)
    mine, my_constants = delegated(ours.edge.exported_program())
    other, their_constants = delegated(theirs.exported_program())
    assert sorted(chain(*mine)) == sorted(chain(*other))
    assert len(mine) <= len(other)
    assert sorted(chain(*my_constants)) == sorted(chain(*their_constants))


def test_a_custom_op_is_refused_with_its_name():
    with torch.library._scoped_library("etdev_test", "FRAGMENT") as library:
        library.define("engine(Tensor x) -> Tensor")
        library.impl("engine", lambda x: x + 1, "CPU")
        library.impl("engine", torch.empty_like, "Meta")

        class Net(torch.nn.Module):
            def forward(self, x):
                return torch.tanh(torch.ops.etdev_test.engine(x))

        plan = Lowerer(["cuda"]).plan(Net(), (torch.ones(2),))["forward"]
    (entry,) = [entry for entry in plan.ledger if "engine" in entry.op]
    assert entry.owner is None
    assert entry.verdicts[0].code == "op"
    assert entry.verdicts[0].text == (
        "AOTInductor has neither a lowering nor a C shim for etdev_test.engine.default"
    )
    assert plan.owner("aten_tanh_default") == "cuda"
