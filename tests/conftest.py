"""Small .pte files that several test files read and none writes; the option of golden plans."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from models import nets
from torch._export import utils

from etdev import Lowerer
from etdev.lowered import Lowered

# Tests compile what they test; those of the cache name a folder.
os.environ["ETDEV_CACHE"] = "off"

# What a shell starts in the background ignores Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`, for planner/test_cases.py."""
    parser.addoption("--rewrite", action="store_true", help="Write the golden plans anew.")


@pytest.fixture(scope="session")
def mlp_lowered() -> Lowered:
    """The MLP: an XNNPACK delegate, layer norm, a delegate."""
    return Lowerer(["cpu"]).lower(*nets.mlp())


@pytest.fixture(scope="session")
def mlp_pte(mlp_lowered: Lowered, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file."""
    return mlp_lowered.save(tmp_path_factory.mktemp("mlp") / "mlp.pte")


@pytest.fixture(scope="session")
def dynamic_pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A portable ReLU of up to 8 rows of 4 numbers."""
    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},)
    lowered = Lowerer([]).lower(torch.nn.ReLU(), (torch.ones(3, 4),), dynamic_shapes=shapes)
    return lowered.save(tmp_path_factory.mktemp("dynamic") / "dynamic.pte")


@pytest.fixture(scope="module", autouse=True)
def _ops_are_listed_once() -> Iterator[None]:
    """Keep torch's list of decomposable ops for the tests of a file.

    Every decomposition asks for it several times, and torch goes through all its namespaces each
    time, as ops may have been registered; that is a third of the time of a small model's plan.
    """
    name = "_collect_all_valid_cia_ops_for_namespace"
    with pytest.MonkeyPatch.context() as patch:
        if listed := getattr(utils, name, None):
            patch.setattr(utils, name, functools.cache(listed))
        yield
