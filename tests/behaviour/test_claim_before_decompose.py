"""Claim before decompose, with the partitioner that asks for everything: ExecuTorch's for CUDA.

Its partitioning needs no GPU, its compiler does; so what it takes is planned here and not compiled.
Who is shown what beside others is in unit/planner/cases/keep_whole.txt. ExecuTorch's own conversion
doesn't simplify, and so nothing is simplified where the two are compared.
"""

import copy
from collections import Counter
from functools import lru_cache

import pytest
import torch
from attrs import define, field
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.program._fake_program import get_fake_program
from support.models import nets
from support.models.small import Attention, Function
from support.toys import Takes
from support.toys.runtime import assert_agrees
from torch import nn
from torch.export import Dim
from torch.nn import functional

from etdev import Claim, Group, KeepWhole, Lowerer, hookimpl
from etdev.errors import LoweringError
from etdev.graph.method import run_order
from etdev.graph.nodes import op_name
from etdev.graph.ops import aten_op, edge_name

pytest.importorskip("triton", reason="CudaPartitioner imports triton, which is for Linux")

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner

pytestmark = pytest.mark.usefixtures("quick_conversion")

SDPA = "aten.scaled_dot_product_attention.default"
WHOLE = (torch.ops.aten.scaled_dot_product_attention.default,)


@define(eq=False)
class CudaClaims:
    """CudaPartitioner as a plugin.

    Args:
        takes: Takes what it is shown, or nothing.
        shown: What it was shown, a list of op names per call.
    """

    name = "cuda"
    takes: bool = True
    shown: list[list[str]] = field(factory=list)

    @hookimpl
    def keep_whole(self, program):
        ops, when = CudaPartitioner([]).ops_to_not_decompose(program)
        return KeepWhole(sorted(ops, key=str), when)

    @hookimpl
    def claim_nodes(self, program):
        self.shown.append(ops_of(program))
        tagged = CudaPartitioner([]).partition(get_fake_program(program)).tagged_exported_program
        groups = [
            Group([node.name])
            for node in tagged.graph.nodes
            # Tags on constants and on the branches of control flow say nothing new.
            if node.op == "call_function" and "delegation_tag" in node.meta
            if self.takes
        ]
        return Claim("CudaBackend", groups)


def decided(plugins, program):
    """The plan, and the program it is for."""
    decision = Lowerer(plugins).decide(program)
    return decision.plan["forward"], decision.programs["forward"]


def ops_of(program):
    return [op_name(node) for node in program.graph.nodes if node.op == "call_function"]


def exported(module, inputs, dynamic_shapes=None):
    with torch.no_grad():
        return torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic_shapes)


def shown(*plugins, program):
    """What each plugin is shown when it has its first turn."""
    Lowerer(plugins, simplify=False).plan(program)
    return [plugin.shown[0] for plugin in plugins]


def heads(count=4, length=6):
    return torch.randn(1, count, length, 8)


VARIANTS = {
    "plain": (Attention(), 4, None),
    "causal": (Attention(is_causal=True), 4, None),
    "scaled": (Attention(scale=0.3), 4, None),
    "grouped": (Attention(enable_gqa=True), 2, None),
    "grouped and causal": (Attention(enable_gqa=True, is_causal=True), 2, None),
    "boolean mask": (Attention(), 4, torch.bool),
    "float mask": (Attention(), 4, torch.float32),
    "grouped and masked": (Attention(enable_gqa=True), 2, torch.bool),
}


def variant(name, length=6):
    """An attention module and its inputs."""
    module, key_heads, mask = VARIANTS[name]
    inputs = (heads(length=length), heads(key_heads, length))
    if mask is not None:
        inputs += (torch.ones(length, length).tril().to(mask),)
    return module, inputs


def dynamic_variant(name):
    """The program of an attention module for any length up to 32."""
    module, inputs = variant(name)
    length = Dim("length", min=2, max=32)
    shapes = ({2: length}, {2: length}, {0: length, 1: length})
    return exported(module, inputs, shapes[: len(inputs)])


@lru_cache
def transformer(name):
    """A program of one layer, or of a model without such layers."""
    return exported(*(nets.conv_net() if name == "conv_net" else getattr(nets, name)(1)))


@lru_cache
def shown_alone(name):
    """What CudaPartitioner alone is shown of a transformer."""
    cuda = CudaClaims()
    Lowerer([cuda]).plan(transformer(name))
    return cuda.shown[0]


# Beside the CPU plugin, on transformers


def assert_sound(plan, program):
    """No node has two owners, and nothing runs before what it reads."""
    nodes = [name for part in plan.partitions for name in part.nodes]
    assert len(nodes) == len(set(nodes))
    home = {name: index for index, part in enumerate(plan.partitions) for name in part.nodes}
    order = run_order(program.graph, plan.partitions)
    position = {unit: index for index, unit in enumerate(order)}
    assert len(position) == len(order)
    for node in program.graph.nodes:
        for source in node.all_input_nodes:
            if source.op == "placeholder" or node.op == "output":
                continue
            before, after = home.get(source.name, source), home.get(node.name, node)
            assert before == after or position[before] < position[after], (source, node)


@pytest.mark.parametrize("name", ["llama"])
def test_beside_the_cpu_plugin_cuda_first_takes_the_whole_transformer(name):
    cuda = CudaClaims()
    plan, program = decided([cuda, "cpu"], transformer(name))
    assert cuda.shown[0] == shown_alone(name)
    assert cuda.shown[0].count(SDPA) == 1
    assert {part.plugin for part in plan.partitions} == {"cuda"}
    assert plan.fallback == ()
    assert_sound(plan, program)


@pytest.mark.parametrize("name", [pytest.param("bert", marks=pytest.mark.suite), "llama"])
def test_the_cpu_plugin_first_leaves_the_rest_of_a_transformer_to_cuda(name):
    cuda = CudaClaims()
    alone = Lowerer(["cpu"]).plan(transformer(name))["forward"]
    plan, program = decided(["cpu", cuda], transformer(name))

    def of_cpu(plan):
        # Of two that only move elements one is left, but not if just one is a piece of attention.
        # CUDA has layer norms whole, of which XNNPACK takes pieces.
        entries = (entry for entry in plan.ledger if "layer_norm" not in entry.node)
        ops = [entry.op for entry in entries if entry.owner == "cpu"]
        return Counter(op for op in ops if not op.startswith(("aten.permute", "aten.view")))

    # XNNPACK multiplies matrices, so that it takes parts of the attention.
    assert cuda.shown[0] == shown_alone(name)
    assert cuda.shown[1].count(SDPA) == 0
    assert of_cpu(plan) == of_cpu(alone)
    assert {part.plugin for part in plan.partitions} == {"cpu", "cuda"}
    assert plan.fallback == ()
    assert_sound(plan, program)


@pytest.mark.suite
@pytest.mark.parametrize("name", ["bert"])
def test_a_first_plugin_that_leaves_attention_alone_changes_nothing_for_cuda(name):
    cuda = CudaClaims()
    linears = Takes("linears", ("linear.default",), whole=(torch.ops.aten.linear.default,))
    plan, program = decided([linears, cuda], transformer(name))
    assert cuda.shown[0] == shown_alone(name)
    owners = {entry.op: entry.owner for entry in plan.ledger}
    assert (owners["aten.linear.default"], owners[SDPA]) == ("linears", "cuda")
    assert_sound(plan, program)


# What ExecuTorch's own conversion shows


class NullBackend(BackendDetails):
    """Compiles nothing."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(b"")


class Records(Partitioner):
    """CudaPartitioner with a null backend, and a note of what it was shown."""

    def __init__(self):
        super().__init__()
        self.inner = CudaPartitioner([])
        self.shown = []

    def ops_to_not_decompose(self, ep):
        return self.inner.ops_to_not_decompose(ep)

    def partition(self, exported_program):
        self.shown.append(ops_of(exported_program))
        result = self.inner.partition(exported_program)
        null = DelegationSpec(NullBackend.__name__, [])
        return PartitionResult(
            result.tagged_exported_program, dict.fromkeys(result.partition_tags, null)
        )


class AsksForNothing(Partitioner):
    def partition(self, exported_program):
        return PartitionResult(exported_program, {})


def shown_upstream(program, *others):
    records = Records()
    # A copy, because it takes delegated constants out of the caller's program.
    to_edge_transform_and_lower(copy.deepcopy(program), partitioner=[records, *others])
    return records.shown[0]


def test_upstream_a_partitioner_that_asks_for_nothing_takes_attention_from_cuda():
    # Why etdev converts with everybody's wishes at once.
    program = exported(*variant("plain"))
    assert shown_upstream(program).count(SDPA) == 1
    beside = shown_upstream(program, AsksForNothing())
    assert beside.count(SDPA) == 0
    assert beside.count("aten.bmm.default") == 2


@pytest.mark.slice("grouped and causal-dynamic", "float mask-dynamic")
@pytest.mark.parametrize("shapes", ["static", "dynamic"])
@pytest.mark.parametrize("name", VARIANTS)
def test_cuda_alone_is_shown_what_upstream_shows_it(name, shapes):
    program = dynamic_variant(name) if shapes == "dynamic" else exported(*variant(name))
    (ours,) = shown(CudaClaims(), program=program)
    assert ours == shown_upstream(program)
    assert ours.count(SDPA) == 1


@pytest.mark.slice("conv_net")
@pytest.mark.parametrize("name", ["bert", "llama", "conv_net"])
def test_cuda_alone_is_shown_what_upstream_shows_it_of_a_model(name):
    (ours,) = shown(CudaClaims(), program=transformer(name))
    assert ours == shown_upstream(transformer(name))


def test_ops_that_write_in_place_are_asked_about_in_their_functional_form():
    class InPlace(nn.Module):
        def forward(self, x):
            y = functional.silu(x + 1, inplace=True)
            return functional.hardswish(y, inplace=True).chunk(2, -1)[0]

    program = exported(InPlace(), (torch.randn(2, 4),))
    (ours,) = shown(CudaClaims(), program=program)
    assert ours == shown_upstream(program)
    assert {"aten.silu.default", "aten.hardswish.default", "aten.split_copy.Tensor"} < set(ours)


# What nobody takes in the end


@pytest.mark.slice("float mask")
@pytest.mark.parametrize("name", VARIANTS)
def test_attention_kept_whole_that_nobody_takes_runs_at_every_length(name):
    torch.manual_seed(0)
    lowered = Lowerer([Takes("keeper", ("none",), whole=WHOLE), "cpu"]).lower(dynamic_variant(name))
    assert not any(entry.op == SDPA for entry in lowered.plan["forward"].ledger)
    assert_agrees(lowered, VARIANTS[name][0], *(variant(name, length)[1] for length in (2, 7, 32)))


@pytest.mark.suite
@pytest.mark.parametrize("name", ["llama"])
def test_a_transformer_kept_whole_that_nobody_takes_runs(name):
    module, inputs = getattr(nets, name)(1)
    assert_agrees(Lowerer([CudaClaims(takes=False)]).lower(transformer(name)), module, inputs)


@pytest.mark.suite
def test_methods_with_the_same_op_keep_their_own_bounds():
    def method(longest):
        length = Dim("length", min=2, max=longest)
        return exported(Attention(), (heads(), heads()), ({2: length}, {2: length}))

    lowered = Lowerer([Takes("keeper", ("none",), whole=WHOLE), "cpu"]).lower(
        {"short": method(8), "long": method(64)}
    )
    for name, longest in (("short", 8), ("long", 64)):
        inputs = (heads(length=longest), heads(length=longest))
        assert_agrees(lowered, Attention(), inputs, method=name)


class Scales(nn.Module):
    """Pixel shuffle and bilinear upsampling, one after the other."""

    def forward(self, x):
        bigger = functional.pixel_shuffle(x + 1, 2)
        return functional.interpolate(bigger, scale_factor=2, mode="bilinear") * 2


class ScalesInBranches(nn.Module):
    """Pixel shuffle or bilinear upsampling."""

    def forward(self, x):
        shuffled = functional.pixel_shuffle(x, 2)

        def shuffle(x):
            return functional.pixel_shuffle(x + 1, 2).sum(1)

        def stretch(x):
            return functional.interpolate(x, scale_factor=2, mode="bilinear").sum(1)

        return torch.cond(x.sum() > 0, shuffle, stretch, (x,)) * 2 + shuffled


SCALING = (
    torch.ops.aten.pixel_shuffle.default,
    torch.ops.aten.upsample_bilinear2d.vec,
    torch.ops.aten.upsample_bilinear2d.default,
)


@pytest.mark.slice("named ops")
@pytest.mark.parametrize("keeper", ["cuda", "named ops"])
def test_scaling_ops_kept_whole_that_nobody_takes_run(keeper):
    whole = Takes("keeper", (), whole=SCALING)
    first = whole if keeper == "named ops" else CudaClaims(takes=False)
    x = torch.randn(1, 8, 3, 3)
    lowered = Lowerer([first, "cpu"]).lower(Scales(), (x,))
    (ours,) = {part.plugin for part in lowered.plan.partitions}
    assert ours == "cpu"
    assert_agrees(lowered, Scales(), (x,))


@pytest.mark.parametrize("keeper", [pytest.param("cuda", marks=pytest.mark.suite), "named ops"])
def test_scaling_ops_kept_whole_run_in_both_branches(keeper):
    whole = Takes("keeper", (), whole=SCALING)
    first = whole if keeper == "named ops" else CudaClaims(takes=False)
    x = torch.rand(1, 8, 3, 3)
    lowered = Lowerer([first, "cpu"]).lower(ScalesInBranches(), (x,))
    assert_agrees(lowered, ScalesInBranches(), (x,), (-x,))


def test_cuda_takes_a_cond_with_its_branches():
    cuda = CudaClaims()
    plan = Lowerer([cuda, "cpu"]).plan(ScalesInBranches(), (torch.rand(1, 8, 3, 3),))["forward"]
    assert {part.plugin for part in plan.partitions} == {"cuda"}
    assert "aten.pixel_shuffle.default" in cuda.shown[0]
    assert plan.fallback == ()


def test_a_view_is_a_copy_in_the_edge_dialect():
    split, silu = torch.ops.aten.split.Tensor, torch.ops.aten.silu.default
    assert (edge_name(split), edge_name(silu)) == ("aten.split_copy.Tensor", "aten.silu.default")
    assert aten_op(torch.ops.aten.split_copy.Tensor) == split
    assert aten_op(torch.ops.aten._to_copy.default) == torch.ops.aten._to_copy.default


class Quotients(nn.Module):
    def forward(self, x, half, other):
        quotients = x // 3, 100 // x, x // x, half.remainder(other), half.fmod(other)
        return *quotients, half.floor_divide(other)


@pytest.mark.slice("int64")
@pytest.mark.parametrize(
    "dtype",
    [
        torch.int8,
        pytest.param(torch.uint8, marks=pytest.mark.suite),
        pytest.param(torch.int32, marks=pytest.mark.suite),
        torch.int64,
    ],
)
def test_quotients_that_are_kept_whole_are_of_one_dtype(dtype):
    """ExecuTorch's verifier refuses others, and makes int64 of a number."""
    aten = torch.ops.aten
    ops = (aten.floor_divide.default, aten.remainder.Tensor, aten.fmod.Tensor)
    x = torch.tensor([-9, -2, 3, 7]).to(dtype)
    x = torch.where(x == 0, 1, x)
    half, other = torch.tensor([5.5, -3.0, 2.0, 9.0]), torch.tensor([2.0, 2.0, -3.0, 4.0])
    inputs = x, half.half(), other.bfloat16()
    lowered = Lowerer([Takes("keeper", (), ops)]).lower(Quotients(), inputs)
    assert_agrees(lowered, Quotients(), inputs)


class Path(nn.Module):
    """Solves a system, and follows places that depend on data."""

    def forward(self, x, steps):
        places = [steps[0].argmax()]
        for step in steps:
            places.append(step[places[-1]])
        return torch.linalg.solve(x @ x.mT + torch.eye(3), x), torch.stack(places)


def test_what_is_kept_whole_and_not_taken_is_computed_without_checks_and_numbers():
    inputs = torch.randn(3, 3), torch.tensor([[2, 0, 1], [1, 2, 0]])
    lowered = Lowerer([CudaClaims(takes=False)]).lower(Path(), inputs)
    assert_agrees(lowered, Path(), inputs, (inputs[0] * 2, 2 - inputs[1]))


class Scanned(nn.Module):
    """Copies state that a loop goes on from, in whose body an op is wanted whole."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x):
        def step(state, x):
            state = state * 0.5 + torch.nn.functional.silu(x)
            return state, state * 2

        state, results = torch._higher_order_ops.scan(step, self.state.clone(), x, dim=0)
        self.state.copy_(state)
        return results


def test_copies_beside_a_loop_with_wanted_ops_are_written():
    x = torch.randn(4, 3)
    lowered = Lowerer([CudaClaims(takes=False)]).lower(Scanned(), (x,))
    assert_agrees(lowered, Scanned(), (x,), (x * 2,))


def test_an_op_kept_whole_whose_pieces_have_effects_is_refused_by_name():
    def told(x):
        torch.ops.aten._print("told")
        return x * 2

    with torch.library._scoped_library("etdev_tests", "FRAGMENT") as library:
        library.define("told(Tensor x) -> Tensor")
        library.impl("told", told, "CompositeImplicitAutograd")
        keeper = Takes("keeper", (), whole=(torch.ops.etdev_tests.told.default,))
        function = Function(lambda x: torch.ops.etdev_tests.told(x) + 1)
        with pytest.raises(LoweringError, match=r"told\.default: its pieces have side"):
            Lowerer([keeper]).lower(function, (torch.ones(3),))
