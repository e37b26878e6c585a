"""Verification: what agrees with PyTorch call after call, and what is named where one differs."""

from __future__ import annotations

import warnings
from itertools import chain, groupby
from types import SimpleNamespace

import pytest
import torch
from attrs import evolve
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig
from support.models import nets
from support.models.small import Function
from support.quirks.quantised import pt2e
from support.toys.accelerator import Accelerator
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.export import Dim

from etdev import Device, EtdevWarning, Lowerer, Settings, hookimpl
from etdev.errors import RunError, SourceError, VerifyError
from etdev.pte.read import read
from etdev.registry.adapted import adapt
from etdev.runtime.child import ChildResult
from etdev.runtime.run import run_series
from etdev.schema import dtypes
from etdev.verify.inputs import Samples
from etdev.verify.oracle import Oracle
from etdev.verify.session import session_of
from etdev.verify.verification import EdgeCall, Verification
from etdev.verify.verifier import Verifier

aten = torch.ops.aten
X = torch.tensor([1.0, -2.0, 3.0])


class Sum(nn.Module):
    """Adds its inputs up."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        self.total.add_(x)
        return self.linear(self.total)


class Add(nn.Module):
    def forward(self, x, y):
        return x + y


def lower(function, *inputs, plugins=()):
    return Lowerer(list(plugins)).lower(Function(function), inputs)


def keeping(model, inputs, *ops, **options):
    """Lower a model with ops that the runtime is said to have a right kernel for."""
    settings = Settings(EdgeCompileConfig(_core_aten_ops_exception_list=list(ops)))
    return Lowerer([], **options).lower(model, inputs, settings=settings)


@pytest.fixture(autouse=True)
def _no_draws(monkeypatch):
    """Calls are counted here; test_planted.py is about those that are drawn."""
    monkeypatch.setattr(Verifier, "_draws", lambda verifier, name: 0)


def refused(lowered, **options):
    with pytest.raises(VerifyError) as caught:
        lowered.verify(**options)
    return caught.value


def test_save_writes_what_is_verified_and_nothing_else(mlp_lowered, spoil, tmp_path):
    path = tmp_path / "net.pte"
    assert mlp_lowered.save(path, verify=True) == path
    before = path.read_bytes()
    spoil("3.weight")
    with pytest.raises(VerifyError, match="output 0 is off by"):
        Lowerer(["cpu"]).lower(*nets.mlp()).save(path, verify=True)
    with pytest.raises(VerifyError) as caught:
        lower(lambda x: x + torch.rand(3), X).save(path, verify=True)
    assert str(caught.value) == (
        "not verified: method 'forward': it draws random numbers; "
        "leave out strict, or --verify, to accept that"
    )
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_data_beside_a_program_appear_with_it_or_not_at_all(spoil, tmp_path):
    config = ExecutorchBackendConfig(external_constants=True)
    spoil("3.weight")
    path = tmp_path / "net.pte"
    with pytest.raises(VerifyError, match="output 0 is off by"):
        Lowerer(["cpu"]).lower(*nets.mlp()).save(path, config, verify=True)
    assert not list(tmp_path.iterdir())


def test_a_right_program_is_verified_over_its_steps(mlp_lowered):
    done = mlp_lowered.verify(steps=2)
    assert (done.calls, done.unverified) == (2, ())
    assert done.tolerance == 1e-4


def test_a_method_may_be_off_by_what_its_backends_round_to():
    class Rounding(Accelerator):
        @hookimpl
        def rounds_to(self, backend_id):
            return "bfloat16" if backend_id == "XnnpackBackend" else None

    plugin = Rounding("rounding", ops=("add",), backend="XnnpackBackend")
    lowered = lower(lambda x: x + x, X, plugins=[plugin])
    assert lowered.verify(steps=1).tolerance == 3e-2
    without = lower(torch.cos, X, plugins=[plugin])
    assert without.verify(steps=1).tolerance == 1e-4


def test_values_in_a_dtype_without_a_tolerance_are_refused(monkeypatch):
    monkeypatch.delitem(dtypes._BY_NAME, "float32")
    assert str(refused(lower(torch.cos, X))) == (
        "method 'forward': has values in float32, for which etdev knows no tolerance; "
        "give tolerance=, or lower it without verifying"
    )
    assert lower(torch.cos, X).verify(tolerance=1e-4).calls == 3


def test_state_is_carried_on_and_the_callers_module_keeps_its_own():
    module = Sum()
    lowered = Lowerer(["cpu"]).lower(module, (X,))
    with torch.no_grad():
        module(X)
    before = module.total.clone()
    assert lowered.verify(steps=4).calls == 4
    assert torch.equal(module.total, before)


def test_a_state_that_starts_elsewhere_is_noticed():
    lowered = Lowerer([]).lower(Sum(), (X,))
    name = next(iter(lowered.lowering.references))
    # As if the module had held another value when it was exported.
    lowered.lowering.references[name].state["total"].add_(5)
    error = refused(lowered)
    assert error.who == "method 'forward'"
    assert error.what.startswith("step 0: output 0 is off by ")
    assert error.what.endswith("; every delegate and every portable kernel is right by itself")


def test_the_portable_kernel_that_is_wrong_is_named():
    model = Function(lambda x: torch.remainder(x + 1, 3))
    lowered = keeping(model, (torch.tensor([-6, 3, -2]),), aten.remainder.Scalar)
    what = refused(lowered).what
    if "kernel of" not in what:
        pytest.skip("this runtime computes remainder as PyTorch does")
    assert "; kernel of aten.remainder.Scalar (aten_remainder_scalar at small.py:" in what


def test_a_runtime_that_dies_is_a_result(tmp_path):
    model = Function(lambda x: x.unfold(0, 1, 1) + 1)
    lowered = keeping(model, (torch.tensor(1.0),), aten.unfold.default)
    with pytest.raises(VerifyError) as caught:
        lowered.save(tmp_path / "net.pte", verify=True)
    assert caught.value.what.startswith("step 0: the process died of SIG")
    assert "; kernel of aten.unfold_copy.default" in caught.value.what
    assert not list(tmp_path.iterdir())


def test_a_process_that_hangs_is_ended(mlp_pte):
    inputs = (torch.randn(2, 8),)
    method = read(mlp_pte).method("forward")
    outcome = run_series(mlp_pte, [(method, inputs)], limit_s=0)
    assert (outcome.values, outcome.failure) == ([], "the process took longer than 0 s")


def test_a_kernel_that_refuses_its_inputs_is_named():
    inputs = (torch.randn(1, 2, 4, 4, 4),)
    what = refused(keeping(nn.Conv3d(2, 3, 3), inputs, aten.convolution.default)).what
    assert what.startswith("step 0: the runtime failed with ")
    assert "; kernel of aten.convolution.default" in what


def test_an_op_without_kernel_is_a_warning_and_refused_under_strict(tmp_path):
    model, inputs = nn.AvgPool3d(2), (torch.randn(1, 2, 4, 4, 4),)
    lowered = keeping(model, inputs, aten.avg_pool3d.default)
    with pytest.warns(EtdevWarning) as caught:
        lowered.save(tmp_path / "pool.pte")
    (text,) = (str(warning.message) for warning in caught)
    assert text.startswith("method 'forward': the runtime has no kernel aten::avg_pool3d.out; ")
    strict = keeping(model, inputs, aten.avg_pool3d.default, strict=True)
    with pytest.raises(RunError, match="has no kernel aten::avg_pool3d"):
        strict.save(tmp_path / "strict.pte")
    assert not (tmp_path / "strict.pte").exists()
    (text,) = lowered.verify(path=tmp_path / "pool.pte").unverified
    assert text == "method 'forward': the runtime has no kernel aten::avg_pool3d.out"


def test_a_program_whose_kernels_are_there_warns_of_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtdevWarning)
        Lowerer([]).lower(nn.ReLU(), (X,)).save(tmp_path / "relu.pte")


def test_boundaries_stay_sorted_in_fresh_inputs():
    bounds = torch.tensor([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0])
    model = Function(lambda x, boundaries: torch.bucketize(x, boundaries))
    inputs = (torch.linspace(-2, 2.5, 32), bounds)
    assert Lowerer(["cpu"]).lower(model, inputs).verify(steps=4).calls == 4


def test_drawn_calls_of_integers_alone_differ_from_the_example():
    ids = torch.randint(0, 40, (2, 16))
    program = torch.export.export(nn.Embedding(40, 4), (ids,))
    drawn = [next(attempts)[0].tolist() for attempts, _ in Samples(program, [ids]).draws()]
    assert len({*map(str, drawn)}) == len(drawn)
    assert {0, 39} <= {*chain(*drawn[0])}


def test_drawn_calls_leave_room_for_products_in_another_order():
    work = Lowerer([]).decide(Function(lambda x: x * 1e26), (X,))
    reference = work.references["forward"]
    oracle = Oracle([reference])
    with pytest.raises(OverflowError):
        oracle.call(reference, [X * 1e10], drawn=True)
    assert oracle.call(reference, [X * 1e8], drawn=True).drawn


def doubled_or_normed(x):
    return torch.cond(x.sum() > 0, nn.LayerNorm(4), lambda x: x * 2, (x,))


def summed(x):
    return scan(lambda c, row: (c + row.sin(), c * row), torch.zeros(4), x)


@pytest.mark.parametrize("function", [doubled_or_normed, summed])
def test_control_flow_shows_how_far_rounding_moves_its_results(function):
    work = Lowerer([]).decide(Function(function), (torch.rand(3, 4) + 1e3,))
    call, *_ = session_of(work.references["forward"], (), 1).calls
    (*_, moved) = call.moved(1e-4)
    assert moved[0].max() > 0


@pytest.mark.parametrize(
    "function",
    [lambda x: (x * 0.01).sin(), lambda x: x.float().cos(), lambda x: torch.ones(3) * x],
)
def test_integers_that_are_read_as_floats_stay_like_the_example(function):
    times = torch.tensor([3, 60, 22])
    program = torch.export.export(Function(function), (times,))
    drawn = [next(attempts)[0] for attempts, _ in Samples(program, [times]).draws()]
    assert all(value.min() >= 3 and value.max() <= 60 for value in drawn)


def test_dynamic_sizes_grow_shrink_and_stay_in_one_loaded_method():
    shapes = ({0: Dim("rows", max=8)},)
    lowered = Lowerer([]).lower(nn.ReLU(), (torch.ones(3, 4),), dynamic_shapes=shapes)
    reference = lowered.lowering.references["forward"]
    for given, sizes in (
        ((), [3, 8, 8, 1, 1, 2, 7, 3]),
        ([[torch.ones(2, 4)]], [2, 8, 8, 1, 1, 7, 4, 2]),
    ):
        calls = session_of(reference, given, 3, resized=True).calls
        assert [len(call.inputs[0]) for call in calls] == sizes
    assert lowered.verify().calls == 8
    # Sizes that a user gives are called as they are given.
    assert lowered.verify([(torch.ones(rows, 4),) for rows in (2, 6, 6)]).calls == 3


@pytest.mark.suite
def test_the_delegate_that_is_wrong_in_a_series_is_named_and_no_other():
    """Each delegate is right in its first call; a larger batch after it is wrong."""
    shapes, x = ({0: Dim("rows", min=1, max=8)},), torch.randn(2, 4, 8, 8)
    net = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    theirs = adapt(XnnpackPartitioner(), name="theirs")
    lowered = Lowerer([theirs]).lower(pt2e(net, x, shapes), (x,), dynamic_shapes=shapes)
    what = refused(lowered).what
    assert what.startswith("step 1: output 0 is off by ")
    assert "; delegate theirs_0 (theirs, XnnpackBackend): output 0 is off by " in what
    assert "view_copy" not in what


def at_edges(verification):
    """The edge values, each with the beginning of its problem."""
    return {call.value: call.problem.partition(" by ")[0] for call in verification.edges}


def test_a_size_that_may_be_0_is_reported_apart():
    rows, x = Dim("rows", max=8), torch.ones(3, 1, 4, 4)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()).eval()
    lowered = Lowerer(["cpu"]).lower(net, (x,), dynamic_shapes=({0: rows},))
    done = lowered.verify()
    assert done.calls == 8
    assert done.edges[-1].value == "size 0"
    # XNNPACK fails, or returns memory that nobody wrote.
    assert done.edges[-1].problem
    assert refused(lowered, edges=True).what.startswith("at ")
    others = Lowerer([]).lower(net, (x,), dynamic_shapes=({0: rows},))
    assert at_edges(others.verify()) == dict.fromkeys(("inf", "nan", "size 0"), "")
    assert len(others.verify(edges=True).edges) == 7 + 1


def test_indices_stay_in_range_at_edge_values_too():
    lowered = Lowerer(["cpu"]).lower(nn.Embedding(10, 4), (torch.tensor([1, 9, 3]),))
    assert lowered.verify().edges == ()
    done = lowered.verify(steps=4, edges=True)
    assert (done.calls, len(done.edges)) == (4, 7)


def test_nan_that_is_lost_is_reported_apart_and_an_error_on_request():
    class Drops(nn.Module):
        def forward(self, x):
            return torch.nan_to_num(x, 0.0) if torch.compiler.is_exporting() else x

    lowered = Lowerer([]).lower(Drops(), (X,))
    done = lowered.verify()
    assert done.calls == 3
    assert at_edges(done) == {
        "inf": "output 0 is 3.4e+38 at [0], in eager PyTorch inf (2 such values)",
        "nan": "output 0 is 0 at [0], in eager PyTorch NaN (2 such values)",
    }
    what = refused(lowered, edges=True).what
    assert what.startswith("at inf: output 0 is 3.4e+38 at [0], in eager PyTorch inf")


def test_a_program_that_dies_at_an_edge_value_is_called_at_the_next_ones(monkeypatch):
    dies = ChildResult([], "the process died of SIGFPE")

    def run(path, calls, data, **options):
        first = next((i for i, (_, inputs) in enumerate(calls) if inputs[0][0].isinf()), None)
        done = run_series(path, calls[:first], data)
        return done if first is None else evolve(dies, values=done.values)

    lowered, module = Lowerer([]).lower(nn.ReLU(), (X,)), Lowerer([]).lower(Sum(), (X,))
    monkeypatch.setattr("etdev.verify.verifier.run_series", run)
    edges = lowered.verify(runner="python").edges
    assert [call.problem for call in edges] == [dies.failure, ""]
    # The state is lost, so that nothing can be compared with later calls.
    assert [call.value for call in module.verify(runner="python").edges] == ["inf"]


class Methods(nn.Module):
    """Two methods with a state each, and one that reads another's."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("count", torch.zeros(3))


class Adds(Methods):
    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


class Counts(Methods):
    def forward(self, x):
        self.count.add_(1)
        return self.count + x


def test_calls_of_several_methods_are_mixed_in_one_loaded_program(monkeypatch):
    lowered = Lowerer([]).lower({"adds": (Adds(), (X,)), "counts": (Counts(), (X,))})
    names = []

    def run(path, calls, data, **options):
        names.extend(facts.name for facts, _ in calls)
        return run_series(path, calls, data)

    monkeypatch.setattr("etdev.verify.verifier.run_series", run)
    assert lowered.verify(steps=4, runner="python").calls == 8
    ordinary = names[:8]
    assert sorted(ordinary) == ["adds"] * 4 + ["counts"] * 4
    assert len(list(groupby(ordinary))) > 3
    assert names[8:] == ["adds"] * 2 + ["counts"] * 2

    def disturbed(path, calls, data, **options):
        done = run_series(path, calls, data)
        if len({facts.name for facts, _ in calls}) > 1:
            done.values[-1].outputs[0].add_(1)
        return done

    monkeypatch.setattr("etdev.verify.verifier.run_series", disturbed)
    what = refused(lowered, edges=True, runner="python").what
    assert what.startswith("at nan: output 0 is off by ")
    assert what.endswith("; it is right by itself, so calls of another method disturb it")


class Encodes(nn.Module):
    """A method that leaves its result in an attribute, which another one reads."""

    def __init__(self, memory):
        super().__init__()
        self.memory = memory

    def forward(self, x):
        self.memory.value = x * 2
        return self.memory.value + 1


class Decodes(Encodes):
    def forward(self, x):
        return x + self.memory.value


@pytest.mark.parametrize("first", [Encodes, Decodes])
def test_state_in_python_that_methods_share_is_never_verified(first):
    memory = SimpleNamespace(value=torch.zeros(3))
    order = [first, *({Encodes, Decodes} - {first})]
    lowered = Lowerer([]).lower({kind.__name__: (kind(memory), (X,)) for kind in order})
    what = refused(lowered, runner="python").what
    assert what.endswith("so methods may share state in Python, which torch.export forgets")


def test_float64_does_not_stand_in_for_a_model_that_is_not_as_it_was():
    lowered = Lowerer([]).lower(Adds(), (X,))
    session = session_of(lowered.lowering.references["forward"], [], 2)
    first, second = session.calls
    assert first.exact()
    assert second.exact()
    second.outputs[0].mul_(2)
    assert not second.exact()


class Reads(nn.Module):
    """A reader of the state of another method."""

    def __init__(self, other):
        super().__init__()
        self.register_buffer("total", other.total)

    def forward(self, x):
        return self.total + x


class Sets(Adds):
    """A method that returns nothing: others show what it wrote."""

    def forward(self, x):
        self.total.copy_(x)


def test_calls_of_methods_that_share_state_are_mixed_in_one_loaded_program(tmp_path, monkeypatch):
    adds, sets = Adds(), Sets()
    sets.total = adds.total
    methods = {"sets": sets, "adds": adds, "reads": Reads(adds)}
    lowered = Lowerer([]).lower({name: (module, (X,)) for name, module in methods.items()})
    path = lowered.save(tmp_path / "net.pte")
    seen = []

    def run(path, calls, data, runner, share_arenas):
        seen.append(([facts.name for facts, _ in calls], share_arenas))
        return run_series(path, calls, data, share_arenas=share_arenas)

    monkeypatch.setattr("etdev.verify.verifier.run_series", run)
    done = lowered.verify(path=path, steps=4, strict=True, runner="python")
    assert (done.calls, done.unverified) == (12, ())
    ((names, shared),) = seen
    assert shared
    assert len(list(groupby(names[:12]))) > 5

    def apart(path, calls, data, runner, share_arenas):
        return run_series(path, calls, data)

    monkeypatch.setattr("etdev.verify.verifier.run_series", apart)
    with pytest.raises(VerifyError, match=r"step \d: output 0 is off by"):
        lowered.verify(path=path, runner="python")


def test_state_that_a_file_does_not_share_is_said_to_be_unverified(tmp_path, monkeypatch):
    writer = Adds()
    given = {"adds": (writer, (X,)), "reads": (Reads(writer), (X,))}
    lowered = Lowerer([], share_state=False).lower(given)
    path = lowered.save(tmp_path / "net.pte")
    assert lowered.verify(path=path, strict=True).calls == 6
    # A file of another tool does not say that each has its own.
    monkeypatch.setattr("etdev.pipeline.embed_state", lambda *_: None)
    other = lowered.save(tmp_path / "other.pte")
    done = lowered.verify(path=other)
    text = "buffer total (adds, reads), which several methods share: in this .pte each has its own"
    assert (done.calls, done.unverified) == (6, (text,))
    assert refused(lowered, strict=True, path=other).what == text


def test_a_backend_that_is_not_here_is_said_and_refused_under_strict():
    plugin = Accelerator(ops=("add.Tensor",), device=Device("cuda", 0))
    lowered = Lowerer([plugin]).lower(Add(), (X, X))
    text = "method 'forward': the runtime has no backend FakeAccelerator"
    assert lowered.verify().unverified == (text,)
    assert refused(lowered, strict=True).what == text


def test_inputs_may_be_given_for_one_call_or_for_several(mlp_lowered):
    x = torch.ones(2, 8)
    assert mlp_lowered.verify((x,), steps=1).calls == 1
    assert mlp_lowered.verify([(x,), (x * 2,)], steps=1).calls == 2
    with pytest.raises(SourceError) as caught:
        mlp_lowered.verify((x, x))
    assert str(caught.value).startswith("forward: the inputs are not those it takes; ")


def test_a_mutated_input_is_compared_after_the_call():
    class InPlace(nn.Module):
        def forward(self, x):
            return x.add_(1) * 2 if not torch.compiler.is_exporting() else (x + 1) * 2

    what = refused(Lowerer([]).lower(InPlace(), (X,))).what
    assert what.startswith("step 0: input after the call, 0 is off by 1 ")


def test_random_numbers_cannot_be_compared():
    lowered = lower(lambda x: x + torch.rand(3), X)
    assert lowered.verify().unverified == ("method 'forward': it draws random numbers",)


@pytest.mark.parametrize(
    "function", [lambda x: x[:0] + 1, lambda x: x * float("nan"), lambda x: x * 1e-40]
)
def test_nothing_is_verified_where_nothing_could_differ(function):
    done = lower(function, X).verify()
    why = "it returns no finite value larger than 1e-36"
    assert (done.calls, done.unverified) == (0, (f"method 'forward': {why}",))


@pytest.mark.slice("1e-33")
@pytest.mark.parametrize("scale", [1e-6, 1e-33])
def test_small_values_are_compared_by_their_own_size(scale, spoil):
    def small():
        model, inputs = nets.mlp()
        with torch.no_grad():
            for parameter in model[3].parameters():
                parameter.mul_(scale)
        return Lowerer(["cpu"]).lower(model, inputs)

    assert small().verify().calls == 3
    spoil("3.weight")
    what = refused(small()).what
    assert what.startswith("step 0: output 0 is off by ")
    assert "; delegate cpu_1 (cpu, XnnpackBackend): output 0 is off by " in what


@pytest.mark.slice("plugins0")
@pytest.mark.parametrize("plugins", [["cpu"], []])
def test_what_is_left_where_values_cancel_may_be_their_rounding_errors(plugins):
    def function(x):
        same = x[:, :1].expand(x.shape)
        return x.softmax(-1).sum(-1) - 1, same.mean(-1) - x[:, 0], x.sin() ** 2 + x.cos() ** 2 - 1

    lowered = lower(function, torch.randn(8, 33) / 4, plugins=plugins)
    assert lowered.verify().calls == 3


def test_a_small_value_beside_large_ones_that_cancel_is_no_rounding_error():
    def function(x):
        wrong = 1.5 if torch.compiler.is_exporting() else 1.0
        return x.softmax(-1).sum(-1) - 1, x * 1e-7 * wrong

    what = refused(lower(function, torch.randn(8, 33))).what
    assert what.startswith("step 0: output 1 is off by ")


def nearly(x):
    """Return where the larger of two values is, one of which a program has slightly larger."""
    return (x * torch.tensor([1.00004 if torch.compiler.is_exporting() else 1.0, 1.0])).argmax(-1)


TIES = torch.tensor([[1.0, 1.00002], [5.0, 1.0], [1.0, 5.0]])


def test_an_integer_that_eager_changes_at_the_tolerance_is_left_out_and_told():
    done = lower(nearly, TIES).verify(steps=1)
    assert (done.calls, done.unverified) == (1, ())
    (remark,) = done.remarks
    assert remark.startswith("method 'forward': left out 1 number that PyTorch itself changes")
    assert remark in list(done.lines())


def test_nothing_is_verified_by_integers_that_are_all_left_out():
    done = lower(nearly, TIES[:1]).verify(steps=1)
    assert (done.calls, done.remarks) == (0, ())
    assert done.unverified == ("method 'forward': near ties decide all that it returns",)


def test_the_place_of_one_of_several_equal_values_is_decided():
    def last(x):
        return 1 - x.flip(-1).argmax(-1) if torch.compiler.is_exporting() else x.argmax(-1)

    assert "output 0 is off by 1" in refused(lower(last, torch.full((3, 2), 2.0)), steps=1).what


def test_float64_decides_where_eager_departs_from_it_in_float16():
    def cancelled(x):
        exact = torch.compiler.is_exporting()
        return x.clone() if exact else x + 1000 - 1000

    done = lower(cancelled, X.half() / 3).verify(steps=1)
    assert (done.calls, done.unverified) == (1, ())
    assert done.remarks[0].startswith("method 'forward': 1 call compared with PyTorch in float64")


def test_a_program_that_is_wrong_in_float64_too_is_refused_whatever_eager_rounds():
    def cancelled(x):
        return x * 1.5 if torch.compiler.is_exporting() else x + 1000 - 1000

    assert "output 0 is off by" in refused(lower(cancelled, X.half() / 3), steps=1).what


def normed(factor):
    def norm(x):
        return nn.functional.layer_norm(x, (512,)) * (
            factor if torch.compiler.is_exporting() else 1
        )

    return lower(norm, torch.randn(4, 512, generator=torch.Generator().manual_seed(0)) + 1e4)


def test_a_result_may_be_off_as_far_as_rounding_of_the_inputs_moves_it():
    assert normed(1).verify(steps=1).calls == 1
    assert "output 0 is off by" in refused(normed(1.01), steps=1).what


def test_rounding_excuses_no_jump_at_multiples():
    def floor(x):
        quotient = x / 0.5
        return quotient.ceil() - 1 if torch.compiler.is_exporting() else quotient.floor()

    assert "output 0 is off by 1" in refused(lower(floor, X), steps=1).what


@pytest.mark.slice(0.1)
@pytest.mark.parametrize("step", [0.1, 0.3])
def test_a_jump_at_multiples_of_a_step_that_is_rounded_is_found_where_inputs_are_exact(
    monkeypatch, step
):
    def floor(x):
        quotient = x / step
        wrong = (x > 0) & torch.compiler.is_exporting()
        return torch.where(wrong, quotient.ceil() - 1, quotient.floor())

    monkeypatch.undo()
    assert "output 0 is off by 1" in refused(lower(floor, torch.rand(8, 8))).what


UP_AND_DOWN = torch.tensor([1.0] * 16 + [-1.0] * 16)
COLUMNS = (torch.arange(64) / 7 + 0.1).expand(32, 64)


def chosen(x, off):
    """Choose numbers by the sign of a sum that cancels, which its order decides."""
    exporting = torch.compiler.is_exporting()
    total = x.flip(1) @ COLUMNS if exporting else x @ COLUMNS
    return torch.where(total > 0, x[:, :1], x[:, 31:]) + (off if exporting else 0)


@pytest.mark.parametrize("off", [0, 0.25])
def test_another_order_of_a_sum_may_decide_a_number_and_excuses_no_decided_one(off):
    lowered = lower(lambda x: chosen(x, off), torch.stack([UP_AND_DOWN, *[UP_AND_DOWN.abs()] * 7]))
    if off:
        assert "output 0 is off by 0.25" in refused(lowered, steps=1).what
    else:
        assert lowered.verify(steps=1).calls == 1


def dynamic(off):
    """Return a program with int8 layers, whose rows a kernel quantises by themselves."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(20, 64), nn.Mish(), nn.Linear(64, 1)).eval()
    model = pt2e(layers, torch.randn(4, 20), is_dynamic=True)
    return lower(
        lambda x: model(x) + (off if torch.compiler.is_exporting() else 0),
        torch.randn(4, 20),
        plugins=["cpu"],
    )


@pytest.mark.parametrize("off", [0, 0.05])
def test_quantisers_may_round_either_way_and_excuse_no_larger_error(monkeypatch, off):
    monkeypatch.undo()
    if off:
        assert "output 0 is off by 0.0" in refused(dynamic(off)).what
    else:
        assert dynamic(off).verify().calls >= 20


@pytest.mark.parametrize("example", [1.0, 0.0])
def test_where_an_op_makes_nan_of_a_fresh_input_nothing_is_compared(monkeypatch, example):
    def ratio(x):
        quotient = x / x
        other = 2.0 if torch.compiler.is_exporting() else 3.0
        return torch.where(quotient.isnan(), other, quotient) + x

    monkeypatch.undo()
    lowered = lower(ratio, torch.tensor([[example, 2.0, -1.0]]))
    if example:
        done = lowered.verify()
        assert done.calls > 10
        assert "not compared, since an op returns NaN for numbers there" in done.remarks[-1]
    else:
        assert "step 0: output 0 is off by 1" in refused(lowered).what


def test_offsets_of_bags_stay_sorted(monkeypatch):
    monkeypatch.undo()
    bags = nn.EmbeddingBag(9, 4, mode="mean")
    inputs = torch.arange(9), torch.tensor([0, 4, 4, 6])
    assert Lowerer([]).lower(bags, inputs).verify().calls > 3


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_a_sequence_stays_sorted_in_all_calls(monkeypatch, shape):
    monkeypatch.undo()
    boundaries = torch.tensor([0.0, 1.0, 1.0, 2.0]).reshape(shape)
    done = lower(lambda x, b: torch.bucketize(x, b.view(-1) * 2), X, boundaries).verify()
    assert not done.unverified
    assert done.calls > 3


def test_a_sequence_that_the_model_reverses_is_refused_where_it_does_not_ascend():
    descending = torch.tensor([2.0, 1.0, 0.0])
    lowered = lower(lambda x, b: torch.bucketize(x, -b), X, descending)
    calls = session_of(lowered.lowering.references["forward"], [], 9).calls
    assert all((call.inputs[1].diff() <= 0).all() for call in calls)


def test_attention_and_dropout_in_eval_mode_draw_none(monkeypatch):
    def attend(x):
        attended = nn.functional.scaled_dot_product_attention(x, x, x)
        return nn.functional.dropout(attended, 0.5, training=False)

    calls, call = [], Oracle.call
    monkeypatch.setattr(
        Oracle, "call", lambda *given, **how: calls.append(given) or call(*given, **how)
    )
    done = lower(attend, torch.randn(1, 2, 3, 4)).verify(steps=1)
    assert (done.calls, done.unverified) == (1, ())
    # One call shows that nothing is drawn; the others are that step, and two edge values.
    assert len(calls) == 4


def test_a_program_without_example_inputs_cannot_be_compared():
    program = torch.export.export(nn.ReLU(), (X,))
    program.example_inputs = None
    lowered = Lowerer([]).lower(program)
    assert lowered.verify().unverified == ("method 'forward': has no example inputs",)


def test_an_input_that_is_none_is_passed_on():
    assert lower(lambda x, none, y: x + y, X, None, X * 2).verify(steps=2).calls == 2


def test_sizes_that_depend_on_data_have_no_bounds_to_try():
    assert lower(lambda x: x.argmax().item() + x, X).verify(steps=2).calls == 2


def test_a_verification_prints_as_a_summary_does():
    edges = (EdgeCall("a", "inf"), EdgeCall("a", "nan", "output 0 is 1"), EdgeCall("b", "nan"))
    assert str(Verification(4, 1e-4, (), edges, ("python", "cpp"))) == (
        "verified over 4 calls in python, cpp within 0.0001 of the largest value, also at inf; "
        "but at nan method 'a' differs from PyTorch: output 0 is 1"
    )
    assert (
        str(Verification(0, 0.0, ("method 'a': it draws",))) == "not verified: method 'a': it draws"
    )
