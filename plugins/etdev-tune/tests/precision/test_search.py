"""A search for precisions, with real torchao and XNNPACK, on a scripted clock or a real one."""

from __future__ import annotations

import json

import pytest
import torch
from attrs import evolve
from etdev_tune.exchange import Policy
from etdev_tune.precision.data import data_of
from etdev_tune.precision.schemes import schemes_for
from etdev_tune.precision.sensitivity import Simulation, predicted, sensitivities
from etdev_tune.report import TUNING, Report
from etdev_tune.tune import write_point
from support.models.small import Mixed
from support.shell import succeeds
from support.toys.target import Scripted

import etdev
from etdev import Lowerer, TuneError
from etdev.app import EagerMethod
from etdev.runtime.run import run

QUICK = Policy(warmup=0, repetitions=3, seconds=0.05, warmup_s=0)


def calls(count, rows=2):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(rows, 3, 8, 8, generator=generator),) for _ in range(count)]


@pytest.fixture
def searched(tmp_path):
    """Search on a target on which the time of a call is a function of its delegates."""

    def search(milliseconds=lambda _: 1, model=None, **options):
        target = Scripted(milliseconds)
        given = {"data": calls(4), "plugins": ["cpu"], "store": False, "policy": QUICK, **options}
        module = model or Mixed.seeded()
        tuning = etdev.tune(module, calls(1)[0], tmp_path / "net.pte", on=target, **given)
        return tuning.report

    return search


def by_name(report, name):
    return next(trial for trial in report.trials if trial.name == name)


def number_of(report, name):
    return [trial.name for trial in report.trials].index(name)


class LastUnused(torch.nn.Sequential):
    """Nothing reads the result of the last layer, which is no choice then."""

    def forward(self, x):
        *layers, last = self
        for layer in layers:
            x = layer(x)
        last(x)
        return x


@pytest.mark.suite
def test_a_model_of_one_layer_is_quantised_and_judged_on_other_data(searched, tmp_path):
    layers = torch.nn.Flatten(), torch.nn.Linear(192, 64), torch.nn.Linear(64, 64)
    module = LastUnused(*layers).eval()
    given = {"precision": ["8da8w"], "objective": "size", "tolerance": 2e-2}
    report = searched(model=module, **given)
    plain, quantised = by_name(report, "untuned, float32"), by_name(report, "8da8w")
    assert (report.chosen, report.calibrated, report.calls) == ("8da8w", 2, 2)
    assert plain.error < 1e-5 < quantised.error < 2e-2
    assert 0.2 < quantised.predicted_error / quantised.error < 5
    assert quantised.size_bytes < plain.size_bytes
    assert 'layers = ["1 = 8da8w"]' in (tmp_path / "net.registry.toml").read_text()
    # Another one is written later, without data and without measuring.
    first = (tmp_path / "net.pte").read_bytes()
    methods = {"forward": (module, calls(1)[0])}
    for name in (plain.name, "8da8w"):
        write_point(number_of(report, name), methods, tmp_path / "net.pte", plugins=["cpu"])
        assert ((tmp_path / "net.pte").read_bytes() == first) == (name == "8da8w")
    shown = json.loads(succeeds(f"tune -o {tmp_path / 'net.pte'} --show --json"))
    assert (shown["chosen"], shown["verdict"]) == ("8da8w", "8da8w: asked for by its number")
    assert "layer  chosen  8da8w" in succeeds(f"tune -o {tmp_path / 'net.pte'} --show")
    with pytest.raises(TuneError, match=r"--point: no candidate 99 ran; give one of 0 to 1"):
        write_point(99, methods, tmp_path / "net.pte", plugins=["cpu"])


@pytest.mark.suite
def test_the_smallest_within_the_error_is_written_and_made_again(searched, tmp_path):
    schemes = ["8da8w", "8da4w"]
    report = searched(precision=schemes, objective="size", tolerance=2e-2)
    assert (report.calibrated, report.calls) == (2, 2)
    inside = [t for t in report.trials if t.state == "ran"]
    chosen, plain = by_name(report, report.chosen), by_name(report, "untuned, float32")
    assert chosen.size_bytes == min(t.size_bytes for t in inside) < plain.size_bytes
    assert by_name(report, "8da4w").error > 2e-2
    for name in schemes:
        trial = by_name(report, name)
        assert 0.2 < trial.predicted_error / trial.error < 5
    # The error is that of the file.
    worst = 0.0
    for number, (x,) in enumerate(calls(4)):
        if number % 2:
            with torch.no_grad():
                wanted = Mixed.seeded()(x)
            (got,) = run(tmp_path / "net.pte", [x]).outputs
            worst = max(worst, float((got - wanted).abs().max() / wanted.abs().max()))
    assert worst == pytest.approx(chosen.error, rel=1e-3)
    lowerer = Lowerer(registry=tmp_path / "net.registry.toml")
    lowered = lowerer.lower(Mixed.seeded(), calls(1)[0])
    again = lowered.save(tmp_path / "again.pte", with_ledger=True)
    assert again.read_bytes() == (tmp_path / "net.pte").read_bytes()
    text = (tmp_path / "net.tuning.json").read_text()
    assert TUNING.read(text, Report, "net") == report


@pytest.mark.suite
def test_scales_of_a_static_scheme_are_in_the_lock(searched, tmp_path):
    report = searched(precision=["cpu:int8"], tolerance=1.0, objective="size")
    assert "cpu:int8" in report.chosen
    assert "forward x/int8 = " in (tmp_path / "net.lock").read_text()


@pytest.mark.suite
def test_a_mixed_configuration_that_is_not_clearly_better_leaves_the_uniform_scheme(searched):
    """Every program takes as long as every other one."""
    report = searched(precision=["8da8w"], tolerance=1.0)
    assert not report.chosen.startswith("mixed")
    ran = [t for t in report.trials if t.error is not None]
    assert all(t.against_untuned.value == pytest.approx(1) for t in ran)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (None, "is NoneType, not a list of calls"),
        (calls(1), r"has 1 call; give at least two: one to calibrate on, another one to judge by"),
        ([], "has 0 calls; give at least two"),
        (calls(1)[0][0], "is Tensor, not a list of calls"),
        ([*calls(3), (torch.full((2, 3, 8, 8), torch.nan),)], "call 3 has NaN or infinite values"),
        ([(x, x) for (x,) in calls(2)], "2 inputs are given, it takes 1"),
        ([*calls(2), *calls(1, rows=3)], r"call 2 has torch.float32 \[3, 3, 8, 8\] for input 0"),
        ([(x.double(),) for (x,) in calls(2)], "call 0 has torch.float64"),
        ({"other": calls(2)}, "has no calls of method 'forward'"),
    ],
)
def test_data_that_can_not_be_used_is_refused_and_nothing_is_written(
    searched, tmp_path, data, what
):
    with pytest.raises(TuneError, match=what):
        searched(data=data, precision="auto")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"precision": ["fp3"]}, "there is no scheme 'fp3'; it has cpu:int8, 8da8w"),
        ({"metric_drop": 0.5}, "metric-drop: needs a metric"),
        ({"model": torch.nn.ReLU()}, "the model has no linear layer"),
        pytest.param(
            {"precision": ["8da8w"], "max_size": 10},
            r"no candidate runs within 0.01, 10 B \(untuned, float32: larger than 10 B",
            marks=pytest.mark.suite,
        ),
        pytest.param(
            {"metric": lambda outputs: float("nan"), "precision": ["8da8w"]},
            "returned nan",
            marks=pytest.mark.suite,
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(searched, tmp_path, options, what):
    with pytest.raises(TuneError, match=what):
        searched(**{"precision": "auto", **options})
    assert not list(tmp_path.glob("net.*"))


@pytest.mark.suite
def test_a_scheme_that_no_layer_or_backend_takes_says_why(searched):
    report = searched(precision=["bf16", "8da4w"], tolerance=1.0, model=Narrow().eval())
    assert "takes no convolution" in by_name(report, "8da4w").detail
    # XNNPACK computes it in float32.
    assert by_name(report, "bf16").state == "ran"
    mixed = by_name(searched(precision=["bf16"], tolerance=1.0), "bf16")
    layers = ["conv = bf16", "block.0 = bf16", "head = bf16"]
    assert mixed.options["precision"]["layers"] == layers


class Narrow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x)


@pytest.mark.suite
def test_the_metric_decides_on_the_outputs_of_the_file(searched):
    seen = []

    def agreement(outputs, expected, inputs):
        seen.append((len(outputs), len(expected), len(inputs)))
        pairs = zip(outputs, expected, strict=True)
        return -max(float((one - other).abs().max()) for one, other in pairs)

    report = searched(precision=["8da8w"], metric=agreement, metric_drop=1e-5)
    assert set(seen) == {(2, 2, 2)}
    assert report.metric == 0
    assert by_name(report, report.chosen).metric >= -1e-5
    assert by_name(report, "8da8w").metric < -1e-5
    assert by_name(report, "8da8w").detail == "metric below -1e-05"


class Counting(torch.nn.Module):
    """A layer behind a state that every call moves on."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(64))
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        self.seen.add_(x.flatten(1).sum(0)[:64])
        return self.layer(x.flatten(1)[:, :64]) + self.seen


@pytest.mark.parametrize("scheme", ["8da8w", "cpu:int8"])
def test_simulations_of_a_model_with_state_leave_it_as_it_was(scheme):
    methods = EagerMethod.of_model(Counting().eval(), calls(1)[0])
    program = methods["forward"].program
    (case,) = data_of(methods, calls(6)).calibration
    before = program.state_dict["seen"].clone()
    simulation = Simulation(program, schemes_for([scheme])[scheme], case)
    assert simulation.layers == ["layer"]
    errors = [simulation.error(case, layers) for layers in ([], ["layer"], [], ["layer"])]
    assert errors[0] == errors[2] < 1e-6 < 1e-4 < errors[1] == errors[3] < 0.1
    assert torch.equal(program.state_dict["seen"], before)


class Adding(torch.nn.Module):
    """A layer whose result is added to a state, which starts with zeros."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(64))
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        result = self.layer(x.flatten(1)[:1, :64]) + self.sum
        self.sum.copy_(result[0])
        return result


def test_the_scale_of_a_state_is_that_of_its_values_in_calibration():
    methods = EagerMethod.of_model(Adding().eval(), calls(1)[0])
    program = methods["forward"].program
    (case,) = data_of(methods, calls(6)).calibration
    scales = Simulation(program, schemes_for(["cpu:int8"])["cpu:int8"], case).scales
    assert scales["sum_1/int8"][0] > 1e-3


def test_without_time_for_each_layer_groups_of_layers_are_simulated():
    methods = EagerMethod.of_model(Mixed.seeded(), calls(1)[0])
    program = methods["forward"].program
    (case,) = data_of(methods, calls(6)).calibration
    scheme = schemes_for([])["bf16"]
    simulation = Simulation(program, scheme, case)
    quick, slow = (sensitivities(simulation, case, "bf16", seconds) for seconds in (1e-9, 60))
    assert {one.layer for one in quick} == {one.layer for one in slow} == set(simulation.layers)
    assert {one.without for one in quick} == {None}
    assert all(0 < one.without < 0.1 for one in slow)
    together = simulation.error(evolve(case, calls=case.calls[:1]), simulation.layers)
    assert predicted(
        {(own.layer, "bf16"): own.alone for own in quick}, dict.fromkeys(simulation.layers, "bf16")
    ) == pytest.approx(together)
    assert [one.alone for one in slow] == sorted((one.alone for one in slow), reverse=True)


@pytest.mark.suite
def test_all_schemes_are_searched_here_and_a_mixed_one_is_never_worse(tmp_path):
    report = etdev.tune(
        Mixed.seeded(),
        calls(1)[0],
        tmp_path / "net.pte",
        precision="auto",
        data=calls(8),
        plugins=["cpu"],
        store=False,
        policy=QUICK,
        budget_s=120,
        tolerance=2e-2,
    ).report
    names = {trial.name for trial in report.trials}
    assert {"untuned, float32", "8da8w", "8da4w", "cpu:int8", "int8w"} <= names
    chosen = by_name(report, report.chosen)
    assert chosen.error <= 2e-2
    uniform = [t for t in report.trials if not t.name.startswith("mixed") and t.state == "ran"]
    best = min(uniform, key=lambda t: t.against_untuned.value)
    assert chosen.against_untuned.low <= best.against_untuned.high
    assert any(trial.front for trial in report.trials)
