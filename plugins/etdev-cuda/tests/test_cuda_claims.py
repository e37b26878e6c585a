"""The CUDA plugin against ExecuTorch's own CudaPartitioner: the same nodes, the same constants."""

import functools
from itertools import chain

import pytest
import torch
from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import get_lowered_submodules
from support.models import decoders, nets
from support.toys.aoti import NEEDS_1_5
from torch._higher_order_ops.map import map as hop_map
from torch._higher_order_ops.scan import scan

from etdev import Lowerer
from etdev.registry import PluginEntry, Registry

pytestmark = pytest.mark.usefixtures("aoti", "quick_conversion")
X = torch.randn(3, 4)
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
# These run with `make suites`.
LARGE = ("conv net", "quantised conv net", "cached llama")


def delegated(program):
    """Names of nodes and of constants in each delegate."""
    modules = [module for _, module, _ in get_lowered_submodules(program.graph_module)]
    inner = [module.original_module for module in modules]
    nodes = [sorted(n.name for n in p.graph.nodes if n.op != "output") for p in inner]
    return nodes, [sorted(p.state_dict.keys() | p.constants.keys()) for p in inner]


@pytest.mark.slice("attention", "shared constant")
@pytest.mark.parametrize(
    "model",
    [
        *(
            pytest.param(model, id=name, marks=[pytest.mark.suite] if name in LARGE else [])
            for name, model in MODELS.items()
        ),
        *(pytest.param(model, id=name, marks=NEEDS_1_5) for name, model in CONTROL_FLOW.items()),
    ],
)
def test_alone_it_takes_what_cuda_partitioner_takes(model):
    module, inputs = model()
    with torch.no_grad():
        first, second = (torch.export.export(module, inputs) for _ in range(2))
        # ExecuTorch's own path traces caches wrongly with gradients on.
        theirs = to_edge_transform_and_lower(first, partitioner=[CudaPartitioner([])])
    # Which doesn't simplify either.
    ours = Lowerer(["cuda"], simplify=False).lower(second)
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
    assert entry.owner == "portable"
    assert entry.verdicts[0].code == "op"
    assert entry.verdicts[0].text == (
        "AOTInductor has neither a lowering nor a C shim for etdev_test.engine.default"
    )
    assert plan.owner("aten_tanh_default") == "cuda"


class Calls(torch.nn.Module):
    """A function of its input and its own parameter, buffer and layer."""

    def __init__(self, body):
        super().__init__()
        self.body = body
        self.parameter = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("buffer", torch.ones(4))
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.body(self, x)


def cond(branch):
    return lambda net, x: torch.cond(x.sum() > 0, lambda a: branch(net, a), torch.cos, (x,))


def nested(net, x):
    return torch.cond(x.mean() > 0, lambda a: a.sin() * 3, torch.cos, (x,))


def planned(body, x=X):
    with torch.no_grad():
        return Lowerer(["cuda"]).plan(Calls(body).eval(), (x,))["forward"]


def reason(plan, op):
    """Why the plugin refused the first node of an op that nobody has."""
    entry = next(entry for entry in plan.ledger if op in entry.op and entry.owner == "portable")
    return entry.verdicts[0].code, entry.verdicts[0].text


@pytest.mark.slice("a number")
@pytest.mark.parametrize(
    ("branch", "place"),
    [
        (lambda net, a: a.sin() + 1, "submodule_0 has _tensor_constant0"),
        (nested, "cond in submodule_0: AOTInductor takes no tensor constant"),
    ],
    ids=["a number", "a number in a nested cond"],
)
def test_a_branch_with_a_constant_of_its_own_is_refused(branch, place):
    code, text = reason(planned(cond(branch)), "cond")
    assert code == "op"
    assert place in text
    assert text.endswith("pass it to the branch as an operand")


@pytest.mark.slice("parameter", "full")
@NEEDS_1_5
@pytest.mark.parametrize(
    "branch",
    [
        lambda net, a: a * net.parameter,
        lambda net, a: a * net.buffer,
        lambda net, a: net.linear(a),
        lambda net, a: a + torch.full((4,), 2.0),
    ],
    ids=["parameter", "buffer", "linear", "full"],
)
def test_a_branch_with_weights_is_taken(branch):
    plan = planned(cond(branch))
    assert plan.fallback == ()


def test_loops_over_numbers_are_refused():
    def counted(net, x):
        return torch._higher_order_ops.while_loop(
            lambda i, a: i < 3,
            lambda i, a: (i + 1, a * 2),
            (torch.zeros((), dtype=torch.int64), x),
        )[1]

    _, text = reason(planned(counted), "while_loop")
    assert "AOTInductor takes no tensor constant in a branch" in text


@pytest.mark.parametrize("flow", ["map", "scan"])
def test_what_a_map_or_scan_stacks_is_not_read_in_a_delegate(flow):
    def stacked(net, x):
        if flow == "map":
            return hop_map(torch.sin, x).relu()
        return scan(lambda c, a: (c + a, c + c), torch.zeros(4), x, dim=0)[1].relu()

    _, text = reason(planned(stacked), flow)
    assert "if an op (aten_relu_default) reads what" in text


@pytest.mark.parametrize(
    ("body", "op", "text"),
    [
        (lambda net, x: torch.topk(x, 2)[0], "topk", "would call its ATen kernel"),
        (
            lambda net, x: torch.nn.functional.conv2d(
                x.reshape(1, 1, 4, 4), net.buffer.reshape(1, 1, 2, 2), dilation=2
            ),
            "convolution",
            "would call its ATen kernel, which CudaBackend's runtime does not have",
        ),
        (cond(lambda net, a: a.topk(4)[0]), "cond", "in submodule_0: AOTInductor would call"),
    ],
    ids=["topk", "dilated convolution", "topk in a branch"],
)
def test_an_op_whose_kernel_the_runtime_lacks_is_refused(body, op, text):
    code, why = reason(planned(body, torch.randn(4, 4)), op)
    assert code == "op"
    assert text in why


@pytest.mark.parametrize(
    "body",
    [
        lambda net, x: x.sort()[0],
        lambda net, x: x.argsort(),
        lambda net, x: torch.rand_like(x),
        lambda net, x: torch.nn.functional.dropout(x, training=True),
    ],
    ids=["sort", "argsort", "rand", "dropout"],
)
def test_an_op_whose_kernel_the_runtime_has_is_taken(body):
    assert planned(body).fallback == ()


@pytest.mark.suite
def test_the_pieces_of_an_op_whose_kernel_the_runtime_lacks_are_taken():
    """What checks whether a matrix can be inverted is left out, as without the plugin."""
    plan = planned(lambda net, x: torch.linalg.inv(x) + x, torch.randn(4, 4))
    taken = {name for partition in plan.partitions for name in partition.nodes}
    assert plan.fallback == ()
    assert "aten_linalg_inv_default" not in taken


def test_without_autotuning_products_are_refused():
    registry = Registry((PluginEntry("cuda", options={"max_autotune": False}),))
    plan = Lowerer(["cuda"], registry=registry).plan(*nets.mlp())["forward"]
    assert "would call ATen's aten.addmm.default" in reason(plan, "linear")[1]
    assert plan.owner("aten_layer_norm_default") == "cuda"


def test_float64_stays_inside_of_a_delegate_or_outside_of_all():
    inside = planned(lambda net, x: (x.double() * 2).sin().float() + 1)
    assert inside.fallback == ()
    outside = planned(lambda net, x: (x.double() * 2).sin(), X)
    assert reason(outside, "sin") == (
        "dtype",
        "aten_sin_default is float64, which CudaBackend's runtime does not have",
    )
