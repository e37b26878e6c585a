"""The guide's table of ExecuTorch's partitioners says what is found here."""

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from support.processes import apart
from support.toys import partitioners

GUIDE = (Path(__file__).parents[2] / "plugins/README.md").read_text(encoding="utf-8")
ROWS = {
    line.split(" | ")[0].strip("| "): line
    for line in GUIDE.partition(partitioners.HEADER)[2].partition("\n\n")[0].splitlines()[2:]
}
# Rows that are true only where something is installed, or is not.
NEEDS = {
    "OpenvinoPartitioner": (
        all(importlib.util.find_spec(name) for name in ("openvino", "nncf")),
        "openvino and nncf are not installed",
    ),
    "CudaPartitioner": (not torch.cuda.is_available(), "the table is of a machine without a GPU"),
}

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or f"ExecuTorch {version('executorch')}'s wheel" not in GUIDE,
        reason="the table is of another ExecuTorch",
    ),
    pytest.mark.slow,
]


# One that runs here and leaves the process as it is.
QUICK = ("XnnpackPartitioner",)


@pytest.fixture(scope="module")
def printed(request):
    """The rows as they come out now; some of the partitioners print, too."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    names = {call.params["name"] for call in calls if call and "name" in call.params} & ROWS.keys()
    if names <= set(QUICK):
        return partitioners.rows(names)
    return apart("support.toys.partitioners:rows", names)


def test_the_table_has_every_partitioner_of_the_wheel():
    assert list(ROWS) == [name for _, name in partitioners.discover()]
    assert len(ROWS) > 20


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.suite) for name in ROWS],
)
def test_the_table_says_what_is_found_here(name, printed):
    holds, why = NEEDS.get(name, (True, ""))
    if name == "CudaPartitioner" and torch.version.cuda:
        pytest.skip("torch is built for CUDA here, which fails with other words")
    if not holds:
        pytest.skip(why)
    assert printed[name] == ROWS[name]
