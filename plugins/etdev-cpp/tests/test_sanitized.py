"""Damaged files in a runner with sanitizers: loading ends in an error of ExecuTorch or succeeds.

The runner's own sources and the headers that they include are instrumented, and every function
that allocates or copies memory; the libraries of the wheel are not.
"""

from __future__ import annotations

import os
import random
import re

import pytest
from etdev_cpp.runner import CppRunner

from etdev.pte.read import read
from etdev.runtime.worker import Program

pytestmark = [pytest.mark.suite, pytest.mark.fuzz, pytest.mark.usefixtures("compiles")]
FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
FILES = int(os.environ.get("ETDEV_FUZZ", "150"))
REFUSED = re.compile(r"the C\+\+ runtime failed with Error::\w+ when it loaded .*", re.DOTALL)
WORDS = (b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The folder of the reports of sanitizers."""
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def sanitized(reports):
    """A runner that dies of the first fault that a sanitizer finds."""
    with pytest.MonkeyPatch.context() as patch:
        # The delegates' libraries keep memory for as long as the process lives.
        patch.setenv("ASAN_OPTIONS", f"detect_leaks=0:log_path={reports}/report")
        runner = CppRunner(FLAGS)
        runner.prepare()
        yield runner
        runner.close()


def asked_for_too_much(reports):
    """Return True if the process died of a size that no machine has, and forget the report.

    Without sanitizers that is `std::bad_alloc`, which the runner answers.
    """
    texts = [path.read_text() for path in reports.iterdir()]
    for path in reports.iterdir():
        path.unlink()
    return any(re.search("out-of-memory|allocation-size-too-big", text) for text in texts)


def damaged(data, rest, number):
    """Return a file with other bytes, other numbers, or an early end."""
    own, front = random.Random(number), bytearray(data)
    if number % 3 == 0:
        for _ in range(own.randint(1, 5)):
            front[own.randrange(len(front))] = own.randrange(256)
    elif number % 3 == 1:
        place = own.randrange(len(front) - 4)
        front[place : place + 4] = own.choice(WORDS)
    else:
        return bytes(front[: own.randrange(len(front))])
    return bytes(front) + rest


@pytest.mark.parametrize(
    ("model", "order"),
    [("mlp", "xnnpack"), ("two_methods", "xnnpack"), ("kv_cache", "portable")],
)
def test_a_damaged_file_is_loaded_or_refused(model, order, cells, sanitized, reports, tmp_path):
    _, path = cells(model, order)
    data, bad = path.read_bytes(), tmp_path / "bad.pte"
    size = int.from_bytes(data[16:24], "little")
    methods = [method.name for method in read(path).methods]
    for name in methods:
        assert sanitized.load(Program.of(path, ()), name).failure is None
    refused = 0
    for number in range(FILES):
        bad.write_bytes(damaged(data[:size], data[size:], number))
        failure = sanitized.load(Program.of(bad, ()), methods[0]).failure
        fine = failure is None or REFUSED.fullmatch(failure) or asked_for_too_much(reports)
        assert fine, (number, failure)
        refused += failure is not None
    # Cut files at least.
    assert refused > FILES / 3
