"""The kit: a plugin that keeps the contract passes, each broken one fails on exactly its sin."""

import json

import pytest
import torch
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from support.toys.sins import SINS, Adder, Tripled, on_backend, says_nothing, sums, with_claim

from etdev import Probe, hookimpl
from etdev.testing import CHECKS, Requirements, run
from etdev.testing.fakes import Accelerator
from etdev.testing.programs import Pointwise, X, Y
from etdev.testing.scoreboard import FIRST, Result

MODELS = [(Tripled(), [(torch.ones(2, 2), torch.ones(2, 2))])]
# The others run with `make suites`.


@pytest.mark.slice("says no version", "has other hooks", "zeroes weights", "tosses coins")
@pytest.mark.parametrize("sin", SINS)
def test_a_broken_plugin_fails_on_exactly_its_sin(sin):
    make, check, text, *simulator = SINS[sin]
    # Another process takes as long as all other checks.
    requirements = Requirements(other_process=check == "hash_seeds")
    simulators = {"Sums": simulator[0]} if simulator else {}
    board = run(make, requirements, simulators=simulators, models=MODELS)
    assert board.broken == (check,), board.results
    (result,) = [result for result in board.results if result.outcome == "broken"]
    (broken,) = [one for one in CHECKS if one.name == check]
    assert text in result.text
    assert result.text.startswith(f"{check}: {broken.wants}\n  why: {broken.why}\n  what happened:")
    assert check in ("probe", "api") or "the smallest graph:\ngraph():\n" in result.text
    assert len(board.to_json()) < 40_000
    if check in FIRST:
        after = board.results[[one.name for one in CHECKS].index(check) + 1 :]
        assert {(r.outcome, r.text) for r in after} == {("skipped", f"it doesn't keep to {check}")}


def test_every_check_has_a_plugin_that_breaks_it():
    assert {check for _, check, *_ in SINS.values()} == {check.name for check in CHECKS}


# One check of each kind; all of them run with `make suites`.
EACH_KIND = ("api", "probe", "claims", "reasons", "hash_seeds", "own_models", "values", "devices")


@pytest.mark.parametrize("count", [len(EACH_KIND), pytest.param(24, marks=pytest.mark.suite)])
def test_nothing_is_kept_of_a_plugin_that_claims_nothing(count):
    class Idle(Adder):
        def fits(self, node):
            return False

    asked = [check for check in CHECKS if count == len(CHECKS) or check.name in EACH_KIND]
    assert len(asked) == count
    board = run(Idle, Requirements(other_process=False, reasons=False), checks=asked)
    kept = {result.check for result in board.results if result.outcome == "kept"}
    assert kept == {"api", "probe"}
    assert {r.text for r in board.results if r.outcome == "skipped"} == {
        "it claims nothing of the programs",
        "no models are given",
        "requirements.other_process is off",
        "requirements.reasons is off",
    }
    assert board.badge.startswith(f"etdev hooks 1: 2 of 24 kept, {count - 2} skipped, ")


def test_a_plugin_that_cannot_compile_here_is_not_said_to_have_compiled():
    class Unfit(Adder):
        @hookimpl
        def probe(self):
            return Probe(unfit="no compiler")

    asked = [c for c in CHECKS if c.name in ("callers_own", "settings", "torn_claims", "failures")]
    board = run(Unfit, checks=asked)
    why = "it can't compile here: no compiler"
    assert [(r.outcome, r.text) for r in board.results] == [
        *[("skipped", f"planned, but not compiled: {why}")] * 3,
        ("skipped", why),
    ]


@pytest.mark.suite
def test_a_plugin_that_keeps_the_contract_passes_all_of_it():
    board = run(Adder, models=[(Pointwise(), [(X, Y), (Y, X)])])
    assert {r.check: r.text for r in board.results if r.outcome != "kept"} == {}
    assert board.badge == f"etdev hooks 1: {len(CHECKS)} of {len(CHECKS)} kept"
    data = json.loads(board.to_json())
    assert (data["plugin"], data["badge"], data["hooks"]) == ("adder", board.badge, 1)
    assert [row["check"] for row in data["results"]] == [check.name for check in CHECKS]


def test_what_is_not_asked_is_visible():
    asked = [check for check in CHECKS if check.name in ("probe", "reasons", "devices")]
    board = run(with_claim(says_nothing), Requirements(reasons=False, compiles=False), checks=asked)
    assert [(r.check, r.outcome, r.text) for r in board.results] == [
        ("probe", "kept", ""),
        ("reasons", "skipped", "requirements.reasons is off"),
        ("devices", "skipped", "requirements.compiles is off"),
    ]
    assert board.badge == (
        "etdev hooks 1: 1 of 24 kept, 2 skipped, 21 not made, reasons = False, compiles = False"
    )


def test_a_backend_that_the_runtime_lacks_is_simulated_and_the_report_says_so():
    asked = [check for check in CHECKS if check.name.startswith(("values", "state", "dynamic"))]
    board = run(on_backend("Sums"), checks=asked, simulators={"Sums": sums})
    note = "in the simulator of Sums, not in ExecuTorch's runtime"
    assert {(r.outcome, r.text) for r in board.results} == {("kept", note)}
    assert board.badge == "etdev hooks 1: 4 of 24 kept, 20 not made, 4 in a simulator"
    board = run(on_backend("Sums"), checks=asked[:1])
    reason = "compiled, but not run: this runtime does not have Sums, and no simulator is given"
    assert [(r.outcome, r.text) for r in board.results] == [("skipped", reason)]


class Floats(BackendDetails):
    """Fails on integers; ExecuTorch's runtime does not have it."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        if any(
            n.meta["val"].dtype == torch.int32
            for n in edge_program.graph.find_nodes(op="placeholder")
        ):
            raise RuntimeError("int32 is not there yet")
        return PreprocessResult(processed_bytes=b"")


def test_what_nothing_here_can_run_is_compiled_all_the_same():
    asked = [check for check in CHECKS if check.name in ("values", "dtypes")]
    few = Requirements(dtypes=("float32", "int32"))
    board = run(lambda: Accelerator("floats", backend="Floats"), few, checks=asked)
    absent = "this runtime does not have Floats, and no simulator is given"
    assert board.results[0] == Result("values", "skipped", f"compiled, but not run: {absent}")
    assert board.broken == ("dtypes",)
    assert "RuntimeError: int32 is not there yet" in board.results[1].text


def test_asking_for_more_dtypes_is_not_asking_for_less():
    usual = Requirements().dtypes
    assert Requirements(dtypes=("int8", *usual)).opt_outs == ()
    assert Requirements(dtypes=usual[1:]).opt_outs == (f"dtypes = {usual[1:]}",)
