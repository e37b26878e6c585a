"""Models through the real CudaBackend and AOTInductor, compiled for the CPU, run and compared."""

import copy

import pytest
import torch
from etdev_cuda.testing import compiled
from executorch.backends.cuda.cuda_backend import CudaBackend
from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from support.models import decoders, matrix, nets
from support.quirks import model
from support.toys import Takes
from support.toys.aoti import NEEDS_1_5
from torch import nn

import etdev
from etdev import Lowerer
from etdev.upstream.trees import flat
from etdev.verify.output_error import compare

pytestmark = NEEDS_1_5


@pytest.fixture(scope="module", autouse=True)
def compiling():
    with compiled.compiling():
        yield


def fresh(inputs, call):
    """Other inputs of the same shapes; integers stay, since many are positions."""
    torch.manual_seed(call)
    return [torch.randn_like(x) if x.is_floating_point() else x.clone() for x in inputs]


def assert_computes(lowered, eager, calls, method="forward"):
    program = compiled.CompiledProgram.of(lowered, method=method)
    for inputs in calls:
        with torch.no_grad():
            expected = flat(eager(*[value.clone() for value in inputs]))
        for difference in compare(program(*inputs), expected):
            assert difference.max_error <= 1e-5 * max(1.0, difference.max_value)


def assert_compiles_and_computes(module, inputs, plugins=("cuda",), **options):
    # Exporting leaves fake tensors in some caches.
    eager = copy.deepcopy(module)
    lowered = Lowerer(list(plugins)).lower(module, inputs, **options)
    assert any(part.plugin == "cuda" for part in lowered.plan.partitions)
    assert_computes(lowered, eager, [inputs, *(fresh(inputs, n) for n in (1, 2))])


class Selecting(nn.Module):
    """Counts its calls, selects rows by their values, and returns what it detaches."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("sums", torch.zeros(1, 1))

    def forward(self, x):
        self.calls += 1
        self.sums.add_(x.sum())
        scaled = x * self.calls
        rows = x[(x[:, 0] > 0).nonzero().squeeze(-1)] + self.sums
        return scaled, scaled.detach(), rows.sum(0)


@pytest.mark.suite
@pytest.mark.filterwarnings("error::etdev.EtdevWarning")
def test_counters_and_rows_that_depend_on_data_are_right_at_every_call():
    """Inductor takes a buffer of one element for the number that it is at first."""
    assert_compiles_and_computes(Selecting(), (torch.randn(4, 3),))


def test_an_adapted_partitioner_leaves_counters_outside_too():
    """They would be right only at the first call, as with ExecuTorch's own loop."""
    theirs = CudaPartitioner([CudaBackend.generate_method_name_compile_spec("forward")])

    class Averages(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.tensor(0.0))
            self.register_buffer("sums", torch.zeros(2, 3))

        def forward(self, x):
            self.calls += 1
            self.sums += x
            return self.sums / self.calls

    plan = Lowerer([etdev.adapt(theirs, name="theirs")]).plan(Averages(), (torch.ones(2, 3),))
    storage = {c.target: c.storage for part in plan.partitions for c in part.constants}
    assert (storage["calls"], storage["sums"]) == ("outside", "owned")


class Quotients(nn.Module):
    """Quotients by numbers and by a constant without dimensions, and one that is an index."""

    def __init__(self):
        super().__init__()
        self.register_buffer("place", torch.tensor(2))
        self.register_buffer("three", torch.tensor(3, dtype=torch.int8))

    def forward(self, x, y):
        by_three = x // 3, x // self.three, self.three // x
        three_by = torch.div(self.three, y, rounding_mode="trunc")
        by_seven = y // 7, torch.div(y, 7, rounding_mode="floor"), torch.fmod(y, 7), y % 7
        return *by_three, *by_seven, three_by, y[self.place]


BYTES = torch.cat([torch.arange(-128, 0), torch.arange(1, 128)]).to(torch.int8)


@pytest.mark.suite
def test_quotients_by_a_constant_are_rounded_as_in_pytorch():
    """Inductor takes an integer constant without dimensions for a float."""
    divided = model(
        lambda net, x: (x // net.three, net.three // x), three=torch.tensor(3, dtype=torch.int8)
    )
    assert_compiles_and_computes(divided, (BYTES,))


@pytest.mark.suite
def test_quotients_of_integers_by_constants_are_rounded_as_in_pytorch():
    assert_compiles_and_computes(Quotients(), (BYTES, BYTES.long() * ((1 << 55) + 1)))


def test_an_adapted_partitioner_leaves_divisors_outside_too():
    theirs = CudaPartitioner([CudaBackend.generate_method_name_compile_spec("forward")])
    inputs = (torch.arange(1, 9, dtype=torch.int8), torch.arange(1, 9))
    plan = Lowerer([etdev.adapt(theirs, name="theirs")]).plan(Quotients(), inputs)
    constants = [c for part in plan.partitions for c in part.constants]
    assert {c.storage for c in constants if not c.shape} == {"outside"}


@pytest.mark.suite
def test_both_branches_of_a_cond_run():
    module, inputs = decoders.cond()
    lowered = Lowerer(["cuda"]).lower(module, inputs)
    ones = torch.ones_like(inputs[0])
    assert_computes(lowered, module, [(ones,), (-ones,), inputs])


REST = {
    "cached decoder": decoders.cached_decoder,
    "attention": decoders.attention,
    "map": decoders.mapped,
    "while_loop": decoders.while_loop,
    "scan": decoders.scanned,
    "shared constant": decoders.shared_constant,
    "mlp": nets.mlp,
    "conv net": nets.conv_net,
    "quantised conv net": nets.quantised_conv_net,
    "cached llama": nets.cached_llama,
    "bert": nets.bert,
    "resnet18": nets.resnet18,
}


@pytest.mark.suite
@pytest.mark.parametrize("model", REST)
def test_every_small_model_computes_what_eager_does(model):
    assert_compiles_and_computes(*REST[model]())


@pytest.mark.suite
@pytest.mark.parametrize("model", ["transformer_block", "kv_cache", "dynamic_batch", "two_methods"])
def test_models_of_the_matrix_compute_what_eager_does(model):
    case = matrix.SMALL[model]()
    lowered = Lowerer(["cuda"]).lower(dict(case.programs))
    eager = case.eager()
    for method in case.programs:
        calls = [inputs for name, inputs in case.calls if name == method]
        assert_computes(lowered, eager[method], calls, method)


@pytest.mark.suite
def test_delegates_between_other_nodes_share_their_weights():
    module, inputs = decoders.shared_constant()
    assert_compiles_and_computes(module, inputs, [Takes("taker", ("cos.default",)), "cuda"])


class Counting(nn.Module):
    """A layer, and the number of calls so far."""

    def __init__(self, out):
        super().__init__()
        self.l = nn.Linear(4, out)
        self.register_buffer("calls", torch.zeros(1, 4))

    def forward(self, x):
        self.calls.add_(1)
        return self.l(x + self.calls)


@pytest.mark.suite
def test_methods_of_two_modules_have_weights_and_state_of_equal_names():
    methods, inputs = {"one": Counting(3), "two": Counting(3)}, (torch.randn(2, 4),)
    eager = copy.deepcopy(methods)
    lowered = Lowerer(["cuda"]).lower({name: (own, inputs) for name, own in methods.items()})
    for name, own in eager.items():
        calls = [inputs, *(fresh(inputs, n) for n in (1, 2))]
        assert_computes(lowered, own, calls, method=name)
