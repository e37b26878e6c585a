"""One structure is compiled once, and every delegate has the bytes of a compile of its own."""

import copy
import json

import pytest
import torch
from etdev_cpu import compiler
from etdev_cpu.compiler import XnnpackByStructure
from etdev_cpu.structure import structure_of
from etdev_cpu.template import Template, template_of
from executorch.backends.xnnpack.partition.graphs import bilinear_2d, sdpa
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.dialects._ops import ops as exir_ops
from support.models import decoders, nets
from support.toys.runtime import execute
from torch import nn

import etdev
from etdev import Lowerer

pytestmark = pytest.mark.usefixtures("quick_conversion")

X = torch.randn(2, 8)


class Row(nn.Module):
    """Blocks with a node between them that XNNPACK doesn't have, so that each is a delegate."""

    def __init__(self, *blocks):
        super().__init__()
        # Otherwise the first block would differ: its input needs no gradient.
        self.blocks = nn.ModuleList(blocks).requires_grad_(False)

    def forward(self, x):
        for block in self.blocks:
            x = block(torch.cumsum(x, 0))
        return x


class Scaled(nn.Module):
    """A linear layer and a product with weights."""

    def __init__(self, weight, scale=2.0):
        super().__init__()
        self.linear, self.weight, self.scale = nn.Linear(8, 8), nn.Parameter(weight), scale

    def forward(self, x):
        return self.linear(x) * self.weight + self.scale


class Folded(nn.Module):
    """A sum of weights, which XNNPACK's compiler computes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.one, self.other = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))

    def forward(self, x):
        return self.linear(x) + (self.one + self.other)


class Views(nn.Module):
    """Weights that are parts of one tensor, one of them transposed."""

    def __init__(self, both, index):
        super().__init__()
        self.register_buffer("weight", both[index])
        self.register_buffer("flipped", both[1 - index].t())

    def forward(self, x):
        return nn.functional.linear(nn.functional.linear(x, self.weight), self.flipped)


def normed():
    """A convolution and a batch norm with statistics of its own."""
    norm = nn.BatchNorm2d(3)
    for value in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(value)
    return nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), norm)


def filled(value):
    linear = nn.Linear(8, 8)
    nn.init.constant_(linear.weight, value)
    return linear


def two_equal(equal):
    """Two layers with equal weights, or not."""
    one, other = nn.Linear(8, 8), nn.Linear(8, 8)
    if equal:
        other.load_state_dict(one.state_dict())
    return nn.Sequential(one, nn.Sigmoid(), other)


def rows():
    """Models of alike blocks, how many delegates at least are not compiled, and their input."""
    torch.manual_seed(0)
    shared = nn.Linear(8, 8)
    both = torch.randn(2, 8, 8)
    image = torch.randn(1, 3, 6, 6)
    return {
        "own weights": (Row(*(nn.Linear(8, 8) for _ in range(4))), 3, X),
        "shared weights": (Row(shared, shared, nn.Linear(8, 8)), 1, X),
        "equal weights": (Row(filled(1.0), filled(1.0), filled(0.0), filled(-0.0)), 3, X),
        "equal in the first only": (Row(two_equal(True), two_equal(False), two_equal(False)), 1, X),
        "equal in a later one": (Row(two_equal(False), two_equal(True)), 0, X),
        "no bias": (Row(nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8)), 1, X),
        "other sizes": (Row(nn.Linear(8, 6), nn.Linear(6, 8), nn.Linear(8, 6)), 1, X),
        "half": (Row(*(nn.Linear(8, 8).half() for _ in range(2))), 0, X.half()),
        "other scales": (Row(*(Scaled(torch.randn(8), s) for s in (2.0, 3.0, 2.0))), 1, X),
        "small weights": (Row(*(Scaled(torch.randn(1)) for _ in range(2))), 0, X),
        "nan and infinity": (Row(filled(float("nan")), filled(float("inf"))), 1, X),
        "folded weights": (Row(Folded(), Folded()), 0, X),
        "batch norms": (Row(normed(), normed()), 0, image),
        "prelus": (Row(*(nn.PReLU(3) for _ in range(2))), 0, image),
        # XNNPACK's compiler adds nodes without a handle around the mean.
        "RMS norms": (
            Row(*(nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)) for _ in range(3))),
            2,
            X,
        ),
        "enlarged": (
            Row(*(nn.Upsample(scale_factor=2, mode="bilinear") for _ in range(2))),
            0,
            image,
        ),
        "softmax": (Row(*(nn.Softmax(-1) for _ in range(2))), 1, X),
        "parts of one tensor": (Row(Views(both, 0), Views(both, 1)), 0, X),
    }


@pytest.fixture
def fills(monkeypatch):
    """A fresh memory, and what came from it; each delegate is compared with XNNPACK's own."""
    monkeypatch.setattr(compiler, "_TEMPLATES", {})
    filled, made = [], []
    preprocess, compiled = XnnpackByStructure.preprocess, compiler._compiled

    def noted(program, specs):
        made.append(program)
        return compiled(program, specs)

    def compared(program, specs):
        own = XnnpackBackend.preprocess(copy.deepcopy(program), list(specs))
        before = len(made)
        result = preprocess(program, specs)
        filled.extend([result] if len(made) == before else [])
        assert result.processed_bytes == own.processed_bytes
        assert result.data_store_output == own.data_store_output
        assert list(result.data_store_output.pte_data) == list(own.data_store_output.pte_data)
        assert (result.debug_handle_map, result._delegate_info_meta) == ({}, None)
        return result

    monkeypatch.setattr(compiler, "_compiled", noted)
    monkeypatch.setattr(XnnpackByStructure, "preprocess", staticmethod(compared))
    return filled


@pytest.mark.slice("RMS norms", "shared weights", "parts of one tensor", "nan and infinity")
@pytest.mark.parametrize("name", rows())
def test_delegates_have_the_bytes_of_their_own_compile(name, fills):
    model, least, given = rows()[name]
    model.eval()
    lowered = Lowerer(["cpu"]).lower(model, (given,))
    assert len(lowered.plan.partitions) >= len(model.blocks)
    assert len(fills) >= least
    ((output,),) = execute(lowered, (given,))
    torch.testing.assert_close(output, model(given), equal_nan=True, rtol=1e-3, atol=1e-3)


@pytest.mark.suite
def test_patterns_that_cannot_match_are_not_made():
    patterns = sdpa.get_graphs, bilinear_2d._get_bilinear_2d_graphs
    for made in patterns:
        made.cache_clear()
    assert compiler._compiled(edge(nn.Linear(8, 8)), []).processed_bytes
    assert [made.cache_info().currsize for made in patterns] == [0, 0]
    assert compiler._compiled(edge(nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1))), [])
    assert [made.cache_info().currsize for made in patterns] == [1, 0]
    # The others are made by ExecuTorch as ever.
    assert bilinear_2d.get_graphs_dict()


@pytest.mark.suite
@pytest.mark.parametrize(
    ("model", "least"),
    [(nets.bert, 2), (decoders.attention, 0), (nets.quantised_conv_net, 0)],
)
def test_models_have_the_bytes_of_their_own_compile(model, least, fills):
    module, inputs = model()
    Lowerer(["cpu"]).lower(module, inputs)
    assert len(fills) >= least


def edge(module, given=X):
    """A model in the edge dialect, with its linear layers whole, as XNNPACK is given it."""
    config = EdgeCompileConfig(preserve_ops=[torch.ops.aten.linear.default])
    program = torch.export.export(module.eval().requires_grad_(False), (given,))
    return to_edge(program, compile_config=config).exported_program()


class Constant(nn.Module):
    """A linear layer of a constant."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("given", torch.randn(2, 8))

    def forward(self, x):
        return x + self.linear(self.given)


class Counted(nn.Module):
    """A buffer that is written."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(2, 8))

    def forward(self, x):
        self.sum.add_(x)
        return self.sum + x


class Pooled(nn.Module):
    """A product after a pool, which XNNPACK computes channels last."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x):
        return nn.functional.max_pool2d(x, 2) * self.weight


class Added(nn.Module):
    """A sum with an integer, of which XNNPACK would make a float: the same bytes if it is zero."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.zeros(8, dtype=torch.int32))

    def forward(self, x):
        return x + self.weight


def flipped():
    """A linear layer whose weight is not in the order of its dimensions."""
    linear = nn.Linear(8, 8)
    linear.weight = nn.Parameter(torch.randn(8, 8).t())
    return linear


IMAGE = torch.randn(1, 3, 6, 6)


@pytest.mark.parametrize(
    ("module", "given"),
    [
        *((Pooled(torch.ones(1, 3, 3, 3)), IMAGE), (Added(), torch.ones(2, 8, dtype=torch.int32))),
        *((Folded(), X), (Constant(), X), (Counted(), X), (flipped(), X)),
        *((normed(), IMAGE), (nn.Conv2d(3, 8, 3), IMAGE), (nn.PReLU(8), X), (nn.LayerNorm(8), X)),
    ],
)
def test_there_is_no_structure_where_weights_are_looked_at(module, given):
    assert structure_of(edge(module, given), []) is None


def test_what_the_compiler_may_look_at_is_part_of_the_structure():
    def key(module, given=X, specs=()):
        return structure_of(edge(module, given), specs).key

    scaled, small = Scaled(torch.randn(8)), Scaled(torch.ones(1))
    keys = [
        *(key(scaled), key(scaled, specs=[CompileSpec("a", b"b")]), key(scaled, X.repeat(2, 1))),
        *(
            key(Scaled(torch.randn(8), 3.0)),
            key(Scaled(torch.randn(2, 8))),
            key(scaled.half(), X.half()),
        ),
        *(
            key(small),
            key(Scaled(torch.zeros(1))),
            key(nn.Linear(8, 8)),
            key(nn.Linear(8, 8, bias=False)),
        ),
    ]
    assert len(set(keys)) == len(keys)
    assert key(nn.Linear(8, 8)) == key(nn.Linear(8, 8)) == keys[-2]
    assert key(Scaled(torch.ones(1))) == keys[-4]


def test_a_node_without_a_handle_is_compiled_each_time():
    """XNNPACK leaves zero out of its payload, and gives 65535 to nodes without a handle."""
    for handle in (0, 65535, None):
        program = edge(nn.Linear(8, 8))
        (linear,) = program.graph.find_nodes(
            op="call_function", target=exir_ops.edge.aten.linear.default
        )
        linear.meta["debug_handle"] = handle
        if handle is None:
            del linear.meta["debug_handle"]
        assert structure_of(program, []) is None


def test_a_template_survives_and_a_spoiled_one_is_refused():
    """What another process kept may have been made by anyone."""
    program = edge(nn.Linear(8, 8))
    structure = structure_of(program, [])
    template = template_of(structure, XnnpackBackend.preprocess(copy.deepcopy(program), []))
    data = template.to_bytes()
    assert Template.from_bytes(data, structure) == template
    content = json.loads(data)
    payload, digests, handles, _, _ = content
    bad = [
        ("", "00", payload[:80], "no hex", 3),
        ([], ["a"], digests[:-1], None, [[1]]),
        ([], [1], handles[:-1], None, [*handles, 1]),
        (None, ["a"], [99]),
        (0, "16", None),
    ]
    places = [(place, value) for place, values in enumerate(bad) for value in values]
    spoiled = [[*content[:place], value, *content[place + 1 :]] for place, value in places]
    spoiled += [[], {}, None]
    texts = [b"", b"\xff", data[:-1], *(json.dumps(bad).encode() for bad in spoiled)]
    assert [text for text in texts if Template.from_bytes(text, structure)] == []


def test_notes_on_nodes_are_part_of_the_structure():
    program = edge(nn.Linear(8, 8))
    key = structure_of(program, []).key
    (linear,) = program.graph.find_nodes(
        op="call_function", target=exir_ops.edge.aten.linear.default
    )
    linear.meta["stack_trace"], linear.meta["debug_handle"] = "elsewhere", 17
    assert structure_of(program, []).key == key
    assert 17 in structure_of(program, []).handles
    linear.meta["note"] = 1
    assert structure_of(program, []).key != key
    linear.meta["note"] = object()
    assert structure_of(program, []) is None


@pytest.mark.parametrize(("least", "same"), [(1, True), (2, False)])
def test_dynamic_sizes_are_a_part_of_the_structure(least, same, fills):
    methods = {}
    for name, low in (("first", 1), ("second", least)):
        sizes = ({0: torch.export.Dim("rows", min=low, max=8)},)
        methods[name] = (Row(nn.Linear(8, 8)).eval(), (X,), sizes)
    Lowerer(["cpu"]).lower(methods)
    assert bool(fills) == same


def test_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(compiler, "_TEMPLATES", {})
    monkeypatch.setattr(compiler, "_MOST", 2)
    sizes = [nn.Linear(8, 7), nn.Linear(7, 6), nn.Linear(6, 5)]
    Lowerer(["cpu"]).lower(Row(*sizes).eval(), (X,))
    assert 1 <= len(compiler._TEMPLATES) <= 2


def test_executorchs_own_loop_has_xnnpack_compile_the_same():
    program = torch.export.export(Row(nn.Linear(8, 8), nn.Linear(8, 8)).eval(), (X,))
    upstream = to_edge_transform_and_lower(program, partitioner=[etdev.partitioner(["cpu"])])
    lowered = Lowerer(["cpu"]).lower(program)
    assert upstream.to_executorch().buffer == lowered.edge.to_executorch().buffer
