"""The winner is right, is faster beyond doubt or is the untuned plan, and can be made again."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace

import pytest
import torch
from etdev_tune import builder, measurer
from etdev_tune.comparison import Clock, Comparison
from etdev_tune.exchange import Failure, Policy
from etdev_tune.report import FAILED, TUNING, WRONG, Report
from etdev_tune.runners import Local
from etdev_tune.search import Search
from support.models import nets
from support.models.small import Function
from support.toys.target import Scripted
from torch import nn

import etdev
from etdev import Claim, Lowerer, PluginError, TuneError, hookimpl

QUICK = Policy(warmup=0, repetitions=3, seconds=0.05, warmup_s=0)


def xnnpack_is_faster(backends):
    """1 ms for a program whose delegates are XNNPACK's, else 10 ms."""
    return 1 if backends else 10


class Unfit:
    """Can't compile on this machine."""

    name = "unfit"

    @hookimpl
    def claim_nodes(self, program):
        raise PluginError("unfit", "can't compile here")


class Zeroing:
    """A named fake of a broken backend: what it is given computes something else."""

    name = "zeroing"

    @hookimpl
    def prepare(self, program):
        broken = copy.deepcopy(program)
        with torch.no_grad():
            for value in broken.state_dict.values():
                value.zero_()
        return broken

    @hookimpl
    def claim_nodes(self, program):
        return Claim("XnnpackBackend", [])


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """Tune the MLP on a scripted target; what it writes is in the test's folder.

    Without a budget there is time for the candidates that are always tried, and for no others.
    """

    def tune(target, plugins=("cpu",), model=None, **options):
        module, inputs = model or nets.mlp()
        if "budget_s" not in options:
            monkeypatch.setattr(Search, "has_time", lambda _: False)
        given = {"store": tmp_path / "store", "budget_s": 600, "policy": QUICK, **options}
        return etdev.tune(
            module, inputs, tmp_path / "net.pte", on=target, plugins=list(plugins), **given
        )

    return tune


def trial(tuning, name):
    return next(trial for trial in tuning.report.trials if trial.name == name)


def test_a_clear_win_is_written_with_all_that_makes_it_again(tuned, tmp_path):
    slow = Scripted(lambda backends: 10 if len(backends) > 1 else 1)
    tuning = tuned(slow)
    report = tuning.report
    assert report.confirmation.clear
    assert report.chosen != "untuned"
    assert report.confirmation.ratio.value == pytest.approx(0.1)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        *("net.lock", "net.pte", "net.registry.toml", "net.tuning.json", "store"),
    ]
    lowered = Lowerer(registry=tuning.registry).lower(*nets.mlp())
    again = lowered.save(tmp_path / "again.pte", with_ledger=True)
    assert again.read_bytes() == tuning.program.read_bytes()
    text = (tmp_path / "net.tuning.json").read_text()
    assert TUNING.read(text, Report, "net") == report
    assert json.loads(text)["schema"] == "etdev.tuning"


def test_without_a_clear_win_the_untuned_plan_stays_and_it_says_so(tuned):
    tuning = tuned(Scripted(lambda _: 5, noise=0.05))
    assert tuning.report.chosen == "untuned"
    assert "untuned" in tuning.report.verdict
    lowered = Lowerer(["cpu"]).lower(*nets.mlp())
    untuned = lowered.save(tuning.program.parent / "plain.pte", with_ledger=True)
    assert untuned.read_bytes() == tuning.program.read_bytes()


def test_a_candidate_that_computes_something_else_never_wins(tuned):
    tuning = tuned(Scripted(lambda backends: 10 if backends else 1), ["cpu", Zeroing()])
    assert trial(tuning, "zeroing alone").state == WRONG
    assert trial(tuning, "zeroing alone").latency_ms.value < 2
    assert "zeroing" not in tuning.registry.read_text()
    wrong = [t for t in tuning.report.trials if "zeroing" in t.plugins]
    assert wrong
    assert not any(t.name == tuning.report.chosen for t in wrong)


def test_the_untuned_plan_may_itself_be_wrong_and_is_not_written_then(tuned):
    tuning = tuned(Scripted(xnnpack_is_faster), [Zeroing(), "cpu"])
    assert trial(tuning, "untuned").state == WRONG
    assert tuning.report.chosen == "cpu alone"
    assert trial(tuning, "untuned").detail == "error above 0.001"


def test_a_plugin_that_can_not_compile_is_left_out_of_the_untuned_plan(tuned):
    tuning = tuned(Scripted(xnnpack_is_faster), [Unfit(), "cpu"])
    assert trial(tuning, "untuned").detail == "refused: PluginError: unfit: can't compile here"
    assert trial(tuning, "untuned: cpu").same_as == "cpu alone"
    assert "[plugins.cpu]" in tuning.registry.read_text()
    assert trial(tuning, "portable alone").against_untuned.value == pytest.approx(10)


def test_a_search_in_which_nothing_can_be_built_says_why(tuned, monkeypatch):
    refused = Failure("refused", "on purpose")
    monkeypatch.setattr(builder.Builder, "build", lambda *_: refused)
    with pytest.raises(TuneError, match=r"no candidate runs within 0.001 \(untuned: refused: on"):
        tuned(Scripted(xnnpack_is_faster))


@pytest.mark.parametrize("kind", ["crash", pytest.param("hang", marks=pytest.mark.suite)])
def test_a_candidate_that_crashes_or_hangs_is_a_finding_and_never_wins(tuned, kind):
    target = Scripted(lambda backends: Failure(kind, "on purpose") if backends else 1)
    tuning = tuned(target)
    assert tuning.report.chosen == "portable alone"
    assert (trial(tuning, "untuned").state, trial(tuning, "untuned").detail) == (
        FAILED,
        f"{kind}: on purpose",
    )
    crashed = [request for request in target.requests if request.program.parent.name == "000"]
    assert len(crashed) == 1


@pytest.mark.suite
def test_parts_move_and_every_move_is_told_why(tuned):
    """The fewer delegates the better, but for none at all."""
    tuning = tuned(Scripted(lambda backends: len(backends) or 10), budget_s=600)
    assert len(tuning.plan.partitions) == 1
    assert tuning.report.confirmation.ratio.value == pytest.approx(0.5)
    assert trial(tuning, tuning.report.chosen).detail.startswith("taken: 0.5 (0.5 to 0.5) times")
    changes = [t for t in tuning.report.trials if ";" in t.name]
    assert len(changes) > 4
    assert all(t.same_as or t.detail for t in changes)
    assert [t.name for t in changes if t.detail.startswith("taken")] == [tuning.report.chosen]


def test_rounds_turn_round(tuned):
    target = Scripted(lambda _: 1, noise=0.01)
    tuned(target)
    # The untuned plan is measured alone before the others are measured beside it.
    untuned, first, second, third, fourth, *_ = target.digests
    assert untuned == first
    assert (first, second, third, fourth) == (first, second, second, first)
    assert first != second


@pytest.mark.suite
def test_what_was_interrupted_goes_on_and_nothing_is_measured_twice(tuned, tmp_path):
    target = Scripted(xnnpack_is_faster)
    target.interrupt(after=2)
    with pytest.raises(KeyboardInterrupt):
        tuned(target)
    assert not (tmp_path / "net.pte").exists()
    before = len(target.requests)
    tuning = tuned(target)
    assert tuning.report.reused >= before - 1
    whole = len(target.requests)
    fresh = Scripted(xnnpack_is_faster)
    tuned(fresh, store=tmp_path / "another")
    assert whole == len(fresh.requests)
    again = tuned(target)
    assert (again.report.measured, len(target.requests)) == (0, whole)
    assert again.report.chosen == tuning.report.chosen


@pytest.mark.suite
def test_other_targets_threads_and_inputs_are_measured_anew(tuned):
    target = Scripted(xnnpack_is_faster)
    tuned(target)
    for change in (
        {"policy": Policy(threads=2, warmup=0, repetitions=3, seconds=0.05)},
        {"measured_on": (torch.ones(2, 8),)},
    ):
        assert tuned(target, **change).report.reused == 0
    target.fingerprint = lambda: {"cpu": "another", "cores": "2"}
    assert tuned(target).report.reused == 0


def test_a_small_file_may_be_the_objective(tuned):
    tuning = tuned(Scripted(xnnpack_is_faster), objective="size")
    ran = [t for t in tuning.report.trials if t.state == "ran"]
    chosen = trial(tuning, tuning.report.chosen)
    sizes = [t.size_bytes + t.runtime_bytes for t in ran]
    assert chosen.size_bytes + chosen.runtime_bytes == min(sizes)
    for each in ran:
        # Kernels and XNNPACK have a library each, of 10 and 3 MB.
        assert each.runtime_bytes > 400_000 + 2_000_000 * bool(each.delegates)
        assert (each.runtime_bytes > 10_000_000) == bool(each.portable_nodes)


def test_pins_and_limits_of_the_user_hold_in_every_candidate(tuned):
    pins = [etdev.Pin("portable", op="aten.relu.*")]
    tuning = tuned(Scripted(xnnpack_is_faster), pins=pins)
    (relu,) = [e for e in tuning.plan["forward"].ledger if "relu" in e.op]
    assert relu.owner == "portable"
    assert "aten.relu.*" in tuning.registry.read_text()


# A .pte that could be replaced.
BEFORE = "\0\0\0\0ET12 before"


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (lambda x: x + torch.rand_like(x), "changes its answer between runs"),
        (lambda x: x * 0, "no inputs exercise it: all it returns is 0"),
    ],
)
def test_a_model_that_can_not_be_compared_is_refused(tuned, tmp_path, model, what):
    (tmp_path / "net.pte").write_text(BEFORE)
    with pytest.raises(TuneError, match=what):
        tuned(Scripted(xnnpack_is_faster), model=(Function(model), (torch.ones(2, 4),)))
    assert (tmp_path / "net.pte").read_text() == BEFORE


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (
            {"tolerance": 1e-30},
            r"no candidate runs within 1e-30 \(untuned: error .*; portable alone: error",
        ),
        ({"tolerance": -1}, "tolerance: is -1; give a number"),
        ({"tolerance": float("nan")}, "tolerance: is nan"),
        ({"objective": "beauty"}, "objective: is 'beauty'; valid are latency, size, memory"),
        ({"budget_s": 0}, "'budget_s' must be > 0: 0"),
        ({"policy": 0}, "'threads' must be >= 1: 0"),
        ({"measured_on": (torch.ones(2, 3),)}, "can't run the given inputs"),
        ({"measured_on": {"other": ()}}, "there is no method 'other'"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_overwritten(tuned, tmp_path, options, what):
    (tmp_path / "net.pte").write_text(BEFORE)
    with pytest.raises((TuneError, ValueError), match=what):
        tuned(Scripted(xnnpack_is_faster), **options)
    assert [file.name for file in tmp_path.iterdir() if file.name != "store"] == ["net.pte"]
    assert (tmp_path / "net.pte").read_text() == BEFORE


@pytest.fixture(scope="module")
def here():
    """This machine."""
    runner = Local()
    yield runner
    runner.close()


class TwoSizes(nn.Module):
    """A state that is carried, and a dynamic size."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        self.seen.add_(x.sum(0))
        return self.linear(x) + self.seen


@pytest.mark.suite
def test_a_model_with_state_and_a_dynamic_size_is_tuned_here(here, tmp_path, monkeypatch):
    monkeypatch.setattr(Search, "has_time", lambda _: False)
    sizes = ({0: torch.export.Dim("batch", min=1, max=8)},)
    tuning = etdev.tune(
        TwoSizes(),
        (torch.randn(3, 4),),
        tmp_path / "net.pte",
        dynamic_shapes=sizes,
        on=here,
        plugins=["openvino", "cpu"],
        store=tmp_path / "store",
        policy=QUICK,
        budget_s=20,
        tolerance=3e-2,
    )
    report = tuning.report
    assert (report.calls, report.timed) == (3, 3)
    names = {t.name: t for t in report.trials}
    assert {"untuned", "openvino alone", "cpu alone", "portable alone"} <= set(names)
    assert all(t.error is None or t.error < 3e-2 for t in report.trials)
    lowered = Lowerer(registry=tuning.registry).lower(
        TwoSizes(), (torch.randn(3, 4),), dynamic_shapes=sizes
    )
    assert lowered.plan.plugins == tuning.plan.plugins


def test_of_a_tiny_budget_the_untuned_plan_is_measured_and_nothing_else(tuned):
    target = Scripted(lambda backends: 10 if len(backends) > 1 else 1)
    tuning = tuned(target, budget_s=1e-9)
    assert len(target.requests) == 1
    report = tuning.report
    assert (report.chosen, report.finished, report.confirmation) == ("untuned", False, None)
    assert report.verdict == (
        "untuned: the budget was spent before another was confirmed; give more to go on"
    )
    assert [(t.name, t.state) for t in report.trials] == [("untuned", "ran")]


def test_a_winner_that_the_budget_leaves_no_time_to_confirm_is_not_written(tuned, monkeypatch):
    monkeypatch.setattr(Comparison, "can_confirm", lambda _: False)
    tuning = tuned(Scripted(lambda backends: 10 if len(backends) > 1 else 1))
    assert tuning.report.chosen == "untuned"
    assert not tuning.report.finished
    assert tuning.report.verdict.startswith("untuned: the budget was spent before another")


def test_a_spent_budget_ends_the_rounds(tuned, monkeypatch):
    """A named fake of time: every process takes 100 s of it."""
    target = Scripted(xnnpack_is_faster)
    monkeypatch.setattr(Clock, "spent", property(lambda _: 100.0 * len(target.requests)))
    tuning = tuned(target, budget_s=150)
    assert len(target.requests) == 3
    assert trial(tuning, "portable alone").rounds == 1


@pytest.mark.suite
def test_a_short_budget_tries_options_and_still_confirms(tuned, monkeypatch):
    """A named fake of time: every process takes 1 s of it, and lowering none."""
    target = Scripted(lambda backends: 10 if len(backends) > 1 else 1, noise=0.05)

    def seconds(*_):
        return float(len(target.requests))

    for module in (builder, measurer):
        fake = SimpleNamespace(monotonic=seconds, perf_counter=seconds)
        monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr(Clock, "spent", property(seconds))
    torch.manual_seed(0)
    # A delegate with per_op for each of the first two, which are one without.
    layers = nn.Linear(8, 16), nn.Sigmoid(), nn.LayerNorm(16), nn.Linear(16, 4)
    model = nn.Sequential(*layers).eval(), (torch.randn(2, 8),)
    report = tuned(target, model=model, budget_s=45).report
    assert report.confirmation.clear
    assert [t for t in report.trials if "taken: " in t.detail]
    assert len(target.requests) <= 45


def test_if_the_budget_ends_before_anything_runs_the_error_says_so(tuned, tmp_path):
    target = Scripted(lambda backends: Failure("crash", "on purpose") if backends else 1)
    with pytest.raises(
        TuneError, match=r"no candidate runs within .*crash: on purpose.* give more with --budget"
    ):
        tuned(target, budget_s=1e-9)
    assert not (tmp_path / "net.pte").exists()
