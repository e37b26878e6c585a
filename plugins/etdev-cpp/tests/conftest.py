"""Tests of C++ are skipped where there is no compiler, or no ExecuTorch to compile against."""

from __future__ import annotations

from functools import cache

import pytest
from etdev_cpp import build
from etdev_cpp.libraries import installed
from support.models.matrix import LARGE, SMALL
from support.ssh import _server, ssh

from etdev import Lowerer

__all__ = ["_server", "ssh"]
ORDERS = {"portable": [], "xnnpack": ["cpu"], "openvino": ["openvino", "cpu"]}
# ExecuTorch can't emit it.
REFUSED = ("while_loop",)
QUICK = [("kv_cache", "xnnpack"), ("two_methods", "xnnpack"), ("dynamic_batch", "portable")]


def pytest_generate_tests(metafunc):
    """Run a test that takes a cell on all cells of the matrix; most of them as a suite."""
    if "cell" in metafunc.fixturenames:
        cells = [
            pytest.param((m, order), marks=[] if (m, order) in QUICK else [pytest.mark.suite])
            for m in (*SMALL, *LARGE)
            if m not in REFUSED
            for order in ORDERS
        ]
        metafunc.parametrize("cell", cells, indirect=True, ids=lambda cell: "-".join(cell))


@pytest.fixture(scope="session")
def cells(tmp_path_factory):
    """Return the case and the .pte of a model and an order, lowered once."""
    folder = tmp_path_factory.mktemp("cells")

    @cache
    def lowered(model, order):
        case = {**SMALL, **LARGE}[model]()
        programs = dict(case.programs)
        return case, Lowerer(ORDERS[order]).lower(programs).save(folder / f"{model}-{order}.pte")

    return lowered


@pytest.fixture
def cell(request, cells):
    """The case and the .pte of a cell of the matrix."""
    if request.param[1] == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    return cells(*request.param)


@pytest.fixture(scope="session")
def compiles() -> None:
    """Skip what can't be compiled on this machine."""
    if not build.find() or not installed():
        pytest.skip("there is no C++ compiler here, or no library of ExecuTorch for C++")
