"""Faults of XNNPACK's compiler, planted and known ones, found again in real models."""

from __future__ import annotations

import pytest
from support import hidden

# Rows of the quirks table, and the models that they are hidden in.
ROWS = dict.fromkeys(("tanh-gelus", "factors-of-products", "kernel-sort"), "U-Net block")


@pytest.mark.suite
@pytest.mark.parametrize("row", ROWS)
def test_a_known_fault_is_found_in_a_real_model(row):
    result = hidden.found(row, ROWS[row])
    assert 1 <= len(result.computing) <= 5 < result.nodes
    assert result.captured == []


@pytest.mark.suite
@pytest.mark.parametrize("name", hidden.PLANTS)
def test_an_op_that_a_compiler_gets_wrong_is_found(name):
    result = hidden.planted(name)
    assert result.computing == [hidden.PLANTS[name][1]]
