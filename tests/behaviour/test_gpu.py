"""`make gpu`: what it would run, and why it would skip the rest, without a GPU."""

import re

import pytest
from attrs import evolve
from support.gpu.__main__ import described
from support.gpu.lanes import BY_NAME, LANES, ROOT
from support.gpu.session import lacking

TORCH = BY_NAME["torch"]
BROKEN = "support.gpu.nothing"


def test_each_file_with_a_test_for_a_gpu_is_in_a_lane():
    files = [*ROOT.glob("tests/*/**/test_*.py"), *ROOT.glob("plugins/*/tests/**/test_*.py")]
    marked = {str(f.relative_to(ROOT)) for f in files if re.search(r"mark\.gpu\b", f.read_text())}
    assert marked == {file for lane in LANES for file in lane.files}


@pytest.mark.parametrize(
    ("lane", "device", "why"),
    [
        # Here, where no lane has what it needs of a GPU.
        (BY_NAME["executorch"], "cpu", "this ExecuTorch's runtime has no CudaBackend"),
        (BY_NAME["tensorrt"], "cpu", "tensorrt is not installed"),
        (evolve(TORCH, imports=(BROKEN,)), "cpu", f"{BROKEN} can't be imported: "),
        (evolve(TORCH, imports=("no_such_package",)), "cpu", "no_such_package is not installed"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_lane_whose_imports_fail_names_the_first(lane, device, why):
    assert (lacking(lane, device) or "").startswith(why)


def test_a_lane_without_its_environment_says_how_to_make_it():
    lane = evolve(BY_NAME["executorch"], name="not-made")
    plan = lane.plan()
    assert plan == {"skip": "its environment is not made; make gpu makes it", "tests": []}
    assert described(lane, plan).splitlines()[1] == f"  skip {lane.files[0]}: {plan['skip']}"


@pytest.mark.suite
@pytest.mark.parametrize("lane", [evolve(lane, install=()) for lane in LANES], ids=lambda x: x.name)
def test_no_test_would_run_whose_imports_fail(lane):
    """In a process as `make gpu` starts it: the tests, which can be collected, or one reason."""
    plan = lane.plan("cpu")
    assert bool(plan["skip"]) != bool(plan["tests"])
    assert plan["skip"] == lacking(lane, "cpu")
    assert {name.partition("::")[0] for name in plan["tests"]} <= {*lane.files}
