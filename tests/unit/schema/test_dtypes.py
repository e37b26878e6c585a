"""The table of dtypes: it has torch's and ExecuTorch's facts, and refuses what it doesn't have."""

from __future__ import annotations

import pytest
import torch
from executorch.exir.scalar_type import ScalarType
from executorch.exir.tensor import scalar_type_enum

from etdev.errors import EtdevError
from etdev.schema.dtypes import COMPLEX, DTYPES, FLOAT, HALVES, dtype_of


@pytest.mark.parametrize("known", DTYPES, ids=lambda known: known.name)
def test_a_row_has_the_facts_of_torch_and_executorch(known):
    dtype = getattr(torch, known.name)
    assert dtype_of(dtype) is dtype_of(known.name) is known
    assert known.size_bytes == dtype.itemsize
    assert (known.kind == FLOAT) is dtype.is_floating_point
    assert (known.kind == COMPLEX) is dtype.is_complex
    rounds = dtype.is_floating_point or dtype.is_complex
    assert known.eps == (torch.finfo(dtype).eps if rounds else 0)
    assert (known.tolerance > known.eps) is rounds
    # ExecuTorch's function lacks it.
    wide = known.name == "uint64"
    assert known.code == (ScalarType.UINT64 if wide else scalar_type_enum(dtype))


def test_the_dtypes_that_backends_round_to_are_halves():
    assert HALVES == ("bfloat16", "float16")


def test_a_dtype_that_is_not_listed_is_an_error():
    with pytest.raises(EtdevError) as caught:
        dtype_of(torch.float8_e4m3fn)
    assert str(caught.value).startswith(
        "float8_e4m3fn: is a dtype that etdev doesn't know; use one of uint8, int8, "
    )
