"""The host names no vendor: what is known of a backend is in its plugin."""

import re

import pytest
from support.documents import ROOT

HOST = ROOT / "etdev"
# Built-in plugins, and the faults of ExecuTorch itself.
ELSEWHERE = ("portable", "quirks")
VENDORS = re.compile("openvino|xnnpack|inductor|aoti|tensorrt|nvinfer|nncf|vulkan|coreml|qnn", re.I)
BACKENDS = re.compile(
    r"\b(Xnnpack|Openvino|Cuda|Metal|Qnn|Vulkan|CoreML|MPS|TensorRT|EthosU|Vgf|Enn)Backend\b"
)
ALLOWED = {
    "upstream/decompositions.py": "torch keeps a table of decompositions in its compiler",
    "testing/checks/values.py": "a rival that runs in the runtime, which has this backend anywhere",
}


def named(pattern):
    """The host's files that name something, with the lines."""
    found = {}
    for file in HOST.rglob("*.py"):
        place = file.relative_to(HOST).as_posix()
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
        if place.split("/")[0] not in ELSEWHERE and (hits := list(filter(pattern.search, lines))):
            found[place] = hits
    return found


@pytest.mark.parametrize("pattern", [VENDORS, BACKENDS], ids=["vendors", "backends"])
def test_the_host_names_nobody(pattern):
    assert {place: hits for place, hits in named(pattern).items() if place not in ALLOWED} == {}


def test_every_exception_is_needed():
    assert len(ALLOWED) <= 3
    assert named(VENDORS).keys() >= ALLOWED.keys()
