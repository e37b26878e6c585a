"""The search, with failures that a rule makes instead of a process."""

import copy
import itertools
import time
from importlib.util import find_spec

import pytest
import torch
from attrs import evolve
from etdev_reduce import worker
from etdev_reduce.case import Case, Recording
from etdev_reduce.failure import (
    CRASH,
    ERROR,
    HANG,
    INVALID,
    RIGHT,
    WRONG,
    Failure,
    of_error,
    pattern,
)
from etdev_reduce.flows import PORTABLE, Etdev, Executorch, flows_of
from etdev_reduce.reduction import _begun, _reduced, reduce
from etdev_reduce.script import made
from etdev_reduce.search import Search, Spent, ddmin, trying
from torch import nn

from etdev.app import EagerMethod
from etdev.errors import EtdevError, PluginError, RunError
from etdev.runtime.child import ChildResult

DEEP = 300


class Ruled(Search):
    """A search whose trials are decided by a rule on the source of a case."""

    rule = by_flow = None

    def tried(self, case, flow):
        if self.by_flow:
            return self.by_flow(case.source(), flow)
        if time.monotonic() > self.deadline:
            raise Spent
        self.trials += 1
        scope = {"values": case.kept()}
        exec(made(case.source()), scope)
        scope["model"](*scope["calls"][0])
        return self.rule(case.source())


def searched(module, inputs, rule, tmp_path, seconds=60.0):
    program = torch.export.export(module, inputs)
    case = Recording.of(program, [inputs])
    search = Ruled(tmp_path, time.monotonic() + seconds, lambda text: None)
    search.rule = rule
    first = Case(case, case.nodes)
    search.start(first, PORTABLE, search.tried(first, PORTABLE))
    return search


def chain(number):
    class Chain(nn.Module):
        def forward(self, x):
            for step in range(number):
                x = x.tanh() if step == number // 3 else x + step
            return x

    return Chain()


def on(op, failure=None):
    failure = failure or Failure(WRONG, "run", "values")
    return lambda source: failure if f"aten.{op}." in source else Failure(RIGHT)


@pytest.mark.parametrize("wanted", [{7}, {0, 99}, {3, 50, 51}])
def test_ddmin_finds_what_fails_together(wanted):
    asked = []

    def fails(parts):
        asked.append(len(parts))
        return wanted <= set(parts)

    assert set(ddmin(range(100), fails)) == wanted
    assert len(asked) < 150


def test_ddmin_finds_neighbours_that_a_cut_parts_in_few_trials():
    asked = []

    def fails(parts):
        asked.append(len(parts))
        return {37, 38} <= set(parts)

    assert ddmin(range(DEEP), fails) == [37, 38]
    assert len(asked) <= 40
    # A trial takes as long as its part is large.
    assert sum(asked) <= 2 * DEEP


def test_one_of_300_nodes_is_found_in_some_fifteen_trials(tmp_path):
    search = searched(chain(DEEP), (torch.randn(4, 4),), on("tanh"), tmp_path)
    search._cut()
    assert [str(node.target) for node in search.best.nodes] == ["aten.tanh.default"]
    assert search.trials <= 18


def test_a_wrong_value_does_not_slide_into_another_failure(tmp_path):
    """A program without tanh and mul crashes, is refused, or is wrong in another way."""
    failures = (
        Failure(CRASH, "run", "SIGSEGV"),
        Failure(ERROR, "lower", "ValueError"),
        Failure(WRONG, "run", "form"),
    )
    others = itertools.cycle(failures)
    wrong = Failure(WRONG, "run", "values")
    seen = []

    def rule(source):
        fails = "aten.tanh." in source and "aten.mul." in source
        found = wrong if fails else next(others)
        seen.append(found.kind)
        return found

    class Net(nn.Module):
        def forward(self, x):
            for _ in range(8):
                x = x + 1
            return (x.tanh() * x).exp()

    search = searched(Net(), (torch.randn(4, 4),), rule, tmp_path)
    search.run()
    assert {CRASH, ERROR} < set(seen)
    assert search.failure == wrong
    assert {str(n.target) for n in search.best.nodes} == {"aten.tanh.default", "aten.mul.Tensor"}


def test_sizes_weights_and_dtypes_become_simple(tmp_path):
    layer = nn.Linear(48, 32).half()
    search = searched(layer, (torch.randn(16, 48).half(),), on("linear"), tmp_path)
    search.run()
    source = search.best.source()
    assert search.best.captured == []
    assert "float16" not in source
    assert "32" not in source.replace("float32", "")
    assert "torch.randn(1, 1)" in source


def test_weights_that_matter_stay_captured(tmp_path):
    needs = Failure(WRONG, "run", "values")

    def rule(source):
        return needs if "values['p_weight']" in source else Failure(RIGHT)

    search = searched(nn.Linear(4, 4), (torch.randn(2, 4),), rule, tmp_path)
    search.run()
    assert search.best.captured == ["p_weight"]


def test_the_time_of_a_search_ends_it_with_the_best_so_far(tmp_path):
    search = searched(chain(40), (torch.randn(4, 4),), on("tanh"), tmp_path)
    search._cut()
    search.deadline = 0.0
    with pytest.raises(Spent):
        search.run()
    assert len(search.best.nodes) == 1


def test_errors_are_alike_if_type_place_and_text_but_for_numbers_are():
    def fail(text, kind=ValueError):
        try:
            raise kind(text)
        except kind as error:
            return of_error(error, "lower")

    first = fail("node aten_add_3: sizes [8, 384, 12] are no good")
    assert first.is_like(fail("node aten_add_117: sizes [1, 2] are no good"))
    assert not first.is_like(fail("node aten_mul_117: sizes [1, 2] are no good"))
    assert not first.is_like(fail("node aten_add_3: sizes [8, 384, 12] are no good", KeyError))
    assert not first.is_like(evolve(first, stage="run"))
    assert pattern("at 0x12: -1.5e-3") == pattern("at 0x9: 7")


def test_a_process_that_ends_is_no_failure_of_the_case(tmp_path):
    search = searched(chain(3), (torch.randn(2),), on("tanh"), tmp_path)
    search.child = type("Gone", (), {"run": lambda *_, **__: ChildResult([], "died")})()
    assert Search.tried(search, search.best, None).kind == INVALID


def test_the_stored_values_are_tensors_and_no_branches(tmp_path):
    class Branches(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x.tanh(), lambda x: x + 1, (x,))

    inputs = (torch.randn(2),)
    values = Recording.of(torch.export.export(Branches(), inputs), [inputs]).values()
    assert {type(value) for value in values.values()} == {torch.Tensor}


def test_a_part_reads_values_in_an_order_that_the_runtime_takes():
    """It refuses inputs that are neither contiguous nor channels last."""

    class Turned(nn.Module):
        def forward(self, x):
            return x.transpose(1, 2).relu(), x.to(memory_format=torch.channels_last) + 1

    given = torch.randn(2, 3, 4, 5).transpose(0, 1)
    program = torch.export.export(Turned(), (given,))
    call = Recording.of(program, [(given,)]).calls[0]
    assert call["x"].stride() == given.stride()
    assert call["transpose"].is_contiguous()
    assert call["add"].is_contiguous(memory_format=torch.channels_last)


def test_a_program_that_eager_pytorch_cant_run_is_named():
    program = torch.export.export(nn.Embedding(3, 2), (torch.tensor([0]),))
    with pytest.raises(EtdevError, match="the model: can't be run in eager PyTorch: index out of"):
        Recording.of(program, [(torch.tensor([7]),)])


def test_only_a_hang_makes_the_limit_of_a_trial_shorter(tmp_path):
    limits = {}
    for kind in (WRONG, HANG):
        rule = on("tanh", Failure(kind, "run", seconds=0.1))
        limits[kind] = searched(chain(3), (torch.randn(2),), rule, tmp_path).limit_s
    assert limits == {WRONG: 600.0, HANG: 20.0}


def test_imports_of_a_flow_are_no_part_of_the_budget(tmp_path):
    def run(child, work, *_, **__):
        time.sleep(0.2 * (work is worker.warm))
        return ChildResult([Failure(RIGHT)], "")

    search = searched(chain(3), (torch.randn(2),), on("tanh"), tmp_path)
    search.child, before = type("Importing", (), {"run": run})(), search.deadline
    assert Search.tried(search, search.best, PORTABLE).kind == RIGHT
    assert search.deadline >= before + 0.2


def test_ctrl_c_leaves_the_best_so_far(tmp_path):
    asked = itertools.count()

    def rule(source):
        if next(asked) == 6:
            raise KeyboardInterrupt
        return on("tanh")(source)

    search = searched(chain(60), (torch.randn(4, 4),), rule, tmp_path)
    result = _reduced(search, [], time.monotonic())
    assert (result.finished, result.interrupted, result.nodes) == (False, True, 60)
    assert 1 <= len(result.case.nodes) < 60
    # Nothing of the user's is in it, so it can be written.
    assert result.case.captured == []


class Growing(nn.Module):
    """A sum over calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(2))

    def forward(self, x):
        self.sum.add_(x)
        return self.sum * 2


@pytest.mark.parametrize("is_function", [True, False])
def test_a_failure_of_a_late_call_is_reduced_in_its_state_without_the_earlier_ones(
    is_function, tmp_path
):
    (method,) = EagerMethod.of_model(Growing(), (torch.ones(2),)).values()
    calls = method.calls([[torch.ones(2)]] * 4, 4)

    class Late(Ruled):
        def tried(self, case, flow):
            scope = {"values": copy.deepcopy(case.kept())}
            exec(made(case.source()), scope)
            for number, inputs in enumerate(scope["calls"]):
                if max(value.max() for value in scope["model"](*inputs)) > 5:
                    return Failure(WRONG, "run", "values", call=number)
            return Failure(RIGHT)

    search = Late(tmp_path, time.monotonic() + 60, lambda text: None)
    program = method.program.run_decompositions({}) if is_function else method.program
    assert _begun(search, program, calls, PORTABLE).call == 0
    assert search.best.calls == (2,)


class Curves(nn.Module):
    def forward(self, x):
        return ((x + 1).tanh() + 2).exp() + 3


def test_a_fault_of_executorchs_flow_does_not_stand_for_one_of_etdevs(monkeypatch):
    """ExecuTorch's flow gets tanh wrong, and etdev exp."""
    ours, theirs = Etdev(), Executorch("", "Npu()")

    def by_flow(source, flow):
        wrong = {ours: "aten.exp.", theirs: "aten.tanh."}.get(flow, "nothing")
        return Failure(WRONG, "run", "values") if wrong in source else Failure(RIGHT)

    monkeypatch.setattr(Ruled, "by_flow", staticmethod(by_flow))
    monkeypatch.setattr("etdev_reduce.reduction.Search", Ruled)
    methods = EagerMethod.of_model(Curves(), (torch.randn(4, 4),))
    result = reduce(methods, [ours, theirs])
    assert [str(node.target) for node in result.case.nodes] == ["aten.exp.default"]
    assert (result.flow, result.flows[theirs.name]) == (ours, "right")


def test_what_portable_kernels_get_wrong_is_not_laid_at_a_backends_door(tmp_path):
    theirs = Executorch("", "Npu()")
    search = searched(chain(9), (torch.randn(4, 4),), on("tanh"), tmp_path)
    search.flow = theirs
    result = _reduced(search, [theirs], time.monotonic())
    assert (result.flow, result.title) == (
        PORTABLE,
        "Portable kernels: wrong values of aten.tanh.default",
    )


@pytest.mark.skipif(bool(find_spec("torch_tensorrt")), reason="the plugin can be used here")
def test_executorchs_flow_has_no_partitioner_of_a_plugin_that_cant_compile_here():
    _, theirs = flows_of("both", None, {})
    assert "XnnpackPartitioner()" in theirs.partitioner
    assert "TensorRT" not in theirs.partitioner
    with pytest.raises(PluginError, match="trt: can't compile here"):
        flows_of("both", None, {"plugins": ["trt"]})


def test_a_system_without_forks_is_named(monkeypatch):
    # Another test may have started it.
    trying().close()
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    methods = EagerMethod.of_model(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(RunError, match="the process of trials: works in forks") as caught:
        reduce(methods, [Etdev()])
    assert caught.value.cure == "run it on Linux or macOS, or on Windows in WSL"
