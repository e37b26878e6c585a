"""The global settings that the kit looks at: each change is named and put back."""

import os
import random
import sys
import warnings

import numpy as np
import pytest
import torch

from etdev.testing import global_settings

# What is said of each change, and how it is made.
CHANGES = {
    "torch's default dtype from torch.float32 to torch.float64":
        lambda: torch.set_default_dtype(torch.float64),
    "torch's default device from cpu to meta": lambda: torch.set_default_device("meta"),
    "torch's grad mode from True to False": lambda: torch.set_grad_enabled(False),
    "torch's deterministic mode from 0 to 2": lambda: torch.use_deterministic_algorithms(True),
    "torch's number of threads from {threads} to 3": lambda: torch.set_num_threads(3),
    "torch's random state": lambda: torch.rand(1),
    "NumPy's random state": lambda: np.random.rand(),
    "Python's random state": random.random,
    "the environment (ETDEV_A, PATH)":
        lambda: [os.environ.update(ETDEV_A="1"), os.environ.pop("PATH")],
    "the working directory from {folder} to /": lambda: os.chdir("/"),
    "Python's recursion limit from {depth} to 4321": lambda: sys.setrecursionlimit(4321),
    "Python's warning filters": lambda: warnings.filterwarnings("ignore", message="never said"),
}  # fmt: skip


@pytest.mark.parametrize("text", CHANGES)
def test_a_changed_setting_is_named_and_put_back(text):
    before = global_settings.read()
    said = text.format(
        threads=torch.get_num_threads(), folder=os.getcwd(), depth=sys.getrecursionlimit()
    )
    CHANGES[text]()
    assert global_settings.put_back(before) == [said]
    assert global_settings.read() == before


def test_every_setting_is_tried():
    assert len(CHANGES) == len(global_settings.SETTINGS)
