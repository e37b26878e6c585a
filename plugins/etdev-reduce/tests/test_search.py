"""The search, with failures that a rule makes instead of a process."""

import copy
import itertools
import re
import time
from importlib.util import find_spec

import pytest
import torch
from attrs import evolve
from etdev_reduce.case import Case, kept
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
from etdev_reduce.flows import PORTABLE, Flow, flows_of
from etdev_reduce.recording import Recording
from etdev_reduce.reduction import _begun, _reduced, reduce
from etdev_reduce.script import source
from etdev_reduce.search import Search, Spent, ddmin, trying
from support.models import nets
from torch import nn

from etdev.app import EagerMethod
from etdev.errors import EtdevError, PluginError, RunError
from etdev.runtime.child import ChildResult

DEEP = 300


class Ruled(Search):
    """A search whose trials are decided by a rule on the source of a case."""

    rule = by_flow = None

    def tried(self, cases, flow):
        text = source(cases)
        if self.by_flow:
            return self.by_flow(text, flow)
        if time.monotonic() > self.deadline:
            raise Spent
        self.trials += 1
        scope = {"values": kept(cases)}
        exec(text, scope)
        scope["model"](*scope["calls"][0])
        return self.rule(text)


def searched(module, inputs, rule, seconds=60.0):
    program = torch.export.export(module, inputs)
    case = Recording(program, [inputs])
    search = Ruled(time.monotonic() + seconds, lambda text: None)
    search.rule = rule
    first = {"forward": Case(case, case.nodes)}
    search.start(first, PORTABLE, search.tried(first, PORTABLE))
    return search


def ops(search):
    return [str(node.target) for case in search.best.values() for node in case.nodes]


def chain(number):
    class Chain(nn.Module):
        def forward(self, x):
            for step in range(number):
                x = x.tanh() if step == number // 3 else x + step
            return x

    return Chain()


def on(op, failure=None):
    failure = failure or Failure(WRONG, "run", "values")
    return lambda text: failure if f"aten.{op}." in text else Failure(RIGHT)


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


def test_one_of_300_nodes_is_found_in_some_fifteen_trials():
    search = searched(chain(DEEP), (torch.randn(4, 4),), on("tanh"))
    search._cut("forward")
    assert ops(search) == ["aten.tanh.default"]
    assert search.trials <= 18


def test_a_wrong_value_does_not_slide_into_another_failure():
    """A program without tanh and mul crashes, is refused, or is wrong in another way."""
    failures = (
        Failure(CRASH, "run", "SIGSEGV"),
        Failure(ERROR, "lower", "ValueError"),
        Failure(WRONG, "run", "form"),
    )
    others = itertools.cycle(failures)
    wrong = Failure(WRONG, "run", "values")
    seen = []

    def rule(text):
        fails = "aten.tanh." in text and "aten.mul." in text
        found = wrong if fails else next(others)
        seen.append(found.kind)
        return found

    class Net(nn.Module):
        def forward(self, x):
            for _ in range(8):
                x = x + 1
            return (x.tanh() * x).exp()

    search = searched(Net(), (torch.randn(4, 4),), rule)
    search.run()
    assert {CRASH, ERROR} < set(seen)
    assert search.failure == wrong
    assert {*ops(search)} == {"aten.tanh.default", "aten.mul.Tensor"}


def test_sizes_weights_and_dtypes_become_simple():
    layer = nn.Linear(48, 32).half()
    search = searched(layer, (torch.randn(16, 48).half(),), on("linear"))
    search.run()
    text = source(search.best)
    assert kept(search.best) == {}
    assert "float16" not in text
    assert "32" not in text.replace("float32", "")
    assert "torch.randn(1, 1)" in text


def test_weights_that_matter_stay_captured():
    needs = Failure(WRONG, "run", "values")

    def rule(text):
        return needs if "values['weight']" in text else Failure(RIGHT)

    search = searched(nn.Linear(4, 4), (torch.randn(2, 4),), rule)
    search.run()
    assert [*kept(search.best)] == ["weight"]


def test_the_time_of_a_search_ends_it_with_the_best_so_far():
    search = searched(chain(40), (torch.randn(4, 4),), on("tanh"))
    search._cut("forward")
    search.deadline = 0.0
    with pytest.raises(Spent):
        search.run()
    assert len(ops(search)) == 1


def test_errors_are_alike_if_type_place_and_text_but_for_numbers_are():
    def fail(text, kind=ValueError):
        try:
            raise kind(text)
        except kind as error:
            return evolve(of_error(error), stage="lower")

    first = fail("node aten_add_3: sizes [8, 384, 12] are no good")
    assert first.is_like(fail("node aten_add_117: sizes [1, 2] are no good"))
    assert not first.is_like(fail("node aten_mul_117: sizes [1, 2] are no good"))
    assert not first.is_like(fail("node aten_add_3: sizes [8, 384, 12] are no good", KeyError))
    assert not first.is_like(evolve(first, stage="run"))
    outputs = ("('add_1', 'mul')", "('add', 'x', 'y')", "['add']")
    assert {pattern(f"not in {names}.") for names in outputs} == {"not in ()."}
    assert pattern("at 0x12: -1.5e-3") == pattern("at 0x9: 7") == pattern("at 0x7fab: 1")
    written = [fail(f"can't write /tmp/tmp{own}/schema.fbs") for own in ("ab3_de7h", "x5g7l2y9")]
    assert written[0].is_like(written[1])
    assert written[0].detail == "ValueError: can't write schema.fbs"


def test_a_process_that_ends_is_no_failure_of_the_case():
    search = searched(chain(3), (torch.randn(2),), on("tanh"))
    search.child = type("Gone", (), {"run": lambda *_, **__: ChildResult([], "died")})()
    assert Search.tried(search, search.best, None).kind == INVALID


def test_the_stored_values_are_tensors_and_no_branches():
    class Branches(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x.tanh(), lambda x: x + 1, (x,))

    inputs = (torch.randn(2),)
    recording = Recording(torch.export.export(Branches(), inputs), [inputs])
    values = kept({"forward": Case(recording, recording.nodes)})
    assert {type(value) for value in values.values()} == {torch.Tensor}


def test_results_that_nobody_reads_are_not_made_outputs():
    """XNNPACK's partitioner takes a maximum for another op only without its indices."""

    class Largest(nn.Module):
        def forward(self, x):
            return x.max(1)[0] + 1

    inputs = (torch.randn(2, 3),)
    recording = Recording(torch.export.export(Largest(), inputs), [inputs])
    case = Case(recording, recording.nodes)
    assert [node.name for node in case.only([recording.nodes[:-1]]).outputs] == ["getitem"]


def test_a_part_reads_values_in_an_order_that_the_runtime_takes():
    """It refuses inputs that are neither contiguous nor channels last."""

    class Turned(nn.Module):
        def forward(self, x):
            return x.transpose(1, 2).relu(), x.to(memory_format=torch.channels_last) + 1

    given = torch.randn(2, 3, 4, 5).transpose(0, 1)
    program = torch.export.export(Turned(), (given,))
    call = Recording(program, [(given,)]).calls[0]
    assert call["x"].stride() == given.stride()
    assert call["transpose"].is_contiguous()
    assert call["add"].is_contiguous(memory_format=torch.channels_last)


def test_values_inside_of_a_vmap_are_not_kept():
    class Rows(nn.Module):
        def forward(self, x):
            return torch.vmap(lambda row: row.tanh())(x) + 1

    given = (torch.randn(2, 3),)
    call = Recording(torch.export.export(Rows(), given), [given]).calls[0]
    assert {"x", "add"} <= {*call}
    assert "tanh" not in call


def test_a_program_that_eager_pytorch_cant_run_is_named():
    program = torch.export.export(nn.Embedding(3, 2), (torch.tensor([0]),))
    with pytest.raises(EtdevError, match="the model: can't be run in eager PyTorch: index out of"):
        Recording(program, [(torch.tensor([7]),)])


def test_only_a_hang_makes_the_limit_of_a_trial_shorter():
    limits = {}
    for kind in (WRONG, HANG):
        rule = on("tanh", Failure(kind, "run", seconds=0.1))
        limits[kind] = searched(chain(3), (torch.randn(2),), rule).limit_s
    assert limits == {WRONG: 600.0, HANG: 10.0}


def test_imports_of_a_flow_are_no_part_of_the_budget():
    def run(child, *_, **__):
        time.sleep(0.3)
        return ChildResult([Failure(RIGHT, seconds=0.1)], "")

    search = searched(chain(3), (torch.randn(2),), on("tanh"))
    search.child, before = type("Importing", (), {"run": run})(), search.deadline
    assert Search.tried(search, search.best, PORTABLE).kind == RIGHT
    assert search.deadline >= before + 0.2


def test_ctrl_c_leaves_the_best_so_far():
    asked = itertools.count()

    def rule(text):
        if next(asked) == 6:
            raise KeyboardInterrupt
        return on("tanh")(text)

    search = searched(chain(60), (torch.randn(4, 4),), rule)
    result = _reduced(search, [], time.monotonic())
    assert (result.finished, result.interrupted, result.nodes) == (False, True, 60)
    assert 1 <= len(result.left) < 60
    # Nothing of the user's is in it, so it can be written.
    assert result.captured == []


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
    is_function,
):
    (method,) = EagerMethod.of_model(Growing(), (torch.ones(2),)).values()
    calls = method.calls([[torch.ones(2)]] * 4, 4)

    class Late(Ruled):
        def tried(self, cases, flow):
            scope = {"values": copy.deepcopy(kept(cases))}
            exec(source(cases), scope)
            for number, inputs in enumerate(scope["calls"]):
                if max(value.max() for value in scope["model"](*inputs)) > 5:
                    return Failure(WRONG, "run", "values", call=number)
            return Failure(RIGHT)

    search = Late(time.monotonic() + 60, lambda text: None)
    program = method.program.run_decompositions({}) if is_function else method.program
    assert _begun(search, {"run": program}, {"run": calls}, PORTABLE).call == 0
    assert search.best["forward"].calls == (2,)


def test_a_recurrent_layer_is_reduced_to_one_of_the_ops_of_its_steps():
    (method,) = EagerMethod.of_model(nn.GRU(2, 3), (torch.randn(4, 2),)).values()
    search = Ruled(time.monotonic() + 60, lambda text: None)
    wrong = Failure(WRONG, "run", "values")
    search.rule = lambda text: wrong if re.search(r"aten\.(tanh|gru)\.", text) else Failure(RIGHT)
    _begun(search, {"run": method.program}, {"run": method.calls([], 1)}, PORTABLE)
    search.run()
    assert ops(search) == ["aten.tanh.default"]


class Curves(nn.Module):
    def forward(self, x):
        return ((x + 1).tanh() + 2).exp() + 3


def test_a_fault_of_executorchs_flow_does_not_stand_for_one_of_etdevs(monkeypatch):
    """ExecuTorch's flow gets tanh wrong, and etdev exp."""
    ours, theirs = Flow("etdev", "etdev", "", is_etdev=True), Flow("npu", "Npu", "")

    def by_flow(text, flow):
        wrong = {ours: "aten.exp.", theirs: "aten.tanh."}.get(flow, "nothing")
        return Failure(WRONG, "run", "values") if wrong in text else Failure(RIGHT)

    monkeypatch.setattr(Ruled, "by_flow", staticmethod(by_flow))
    monkeypatch.setattr("etdev_reduce.reduction.Search", Ruled)
    methods = EagerMethod.of_model(Curves(), (torch.randn(4, 4),))
    result = reduce(methods, [ours, theirs])
    assert result.left == ["aten.exp.default"]
    assert (result.flow, result.flows[theirs.name]) == (ours, "right")


def test_what_portable_kernels_get_wrong_is_not_laid_at_a_backends_door():
    theirs = Flow("npu", "Npu", "")
    search = searched(chain(9), (torch.randn(4, 4),), on("tanh"))
    search.flow = theirs
    result = _reduced(search, [theirs], time.monotonic())
    assert (result.flow, result.title) == (
        PORTABLE,
        "Portable kernels: wrong values of aten.tanh.default",
    )


def test_a_flow_that_fails_only_beside_the_imports_of_another_one_is_not_written(
    monkeypatch, tmp_path
):
    search = searched(chain(9), (torch.randn(4, 4),), on("tanh"))
    search.flow = Flow("npu", "Npu", "")
    result = _reduced(search, [], time.monotonic())
    assert result.flow is PORTABLE

    def problem(path, failure):
        return "" if "Npu" in path.read_text() else "it ended with 0"

    monkeypatch.setattr("etdev_reduce.reduction.problem", problem)
    assert "Npu: wrong values" in result.write(tmp_path).read_text()
    assert result.flow is search.flow


@pytest.mark.skipif(bool(find_spec("torch_tensorrt")), reason="the plugin can be used here")
def test_executorchs_flow_has_no_partitioner_of_a_plugin_that_cant_compile_here():
    _, theirs = flows_of(None, {})
    assert "XnnpackPartitioner()" in theirs.statements
    assert "TensorRT" not in theirs.statements
    with pytest.raises(PluginError, match="trt: can't compile here"):
        flows_of(None, {"plugins": ["trt"]})


def test_a_system_without_forks_is_named(monkeypatch):
    # Another test may have started it.
    trying().close()
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    methods = EagerMethod.of_model(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(RunError, match="the process of trials: works in forks") as caught:
        reduce(methods, flows_of(None, {}))
    assert caught.value.cure == "run it on Linux or macOS, or on Windows in WSL"


def test_the_groups_of_a_quantised_net_are_in_the_order_of_its_layers():
    """Its weights are dequantised in the beginning, far from the layers that read them."""
    module, inputs = nets.quantised_conv_net()
    recording = Recording(torch.export.export(module, inputs), [inputs])
    order = {node: number for number, node in enumerate(recording.nodes)}
    ends = [order[group[-1]] for group in recording.groups]
    assert ends == sorted(ends)
    assert any(len(group) >= 4 for group in recording.groups)
