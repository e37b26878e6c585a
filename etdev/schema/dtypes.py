"""The dtypes of tensors: their names, sizes and kinds, and how far values of them may be off."""

from __future__ import annotations

from attrs import frozen

from etdev.errors import EtdevError

BOOL, INTEGER, FLOAT, COMPLEX = "bool", "integer", "float", "complex"


@frozen
class Dtype:
    """A dtype of tensors.

    Args:
        name: Its name in torch, `float16`.
        code: Its number in torch and ExecuTorch, which files have.
        kind: `bool`, `integer`, `float` or `complex`.
        size_bytes: Size of one element.
        eps: The step from 1 to the next number; 0 for integers and bools.
        tolerance: Largest error of a computed value that counts as rounding, relative to the
            largest value of an output; integers and bools have to be equal.
    """

    name: str
    code: int
    kind: str
    size_bytes: int
    eps: float = 0.0
    tolerance: float = 0.0


DTYPES = (
    Dtype("uint8", 0, INTEGER, 1),
    Dtype("int8", 1, INTEGER, 1),
    Dtype("int16", 2, INTEGER, 2),
    Dtype("int32", 3, INTEGER, 4),
    Dtype("int64", 4, INTEGER, 8),
    Dtype("float16", 5, FLOAT, 2, 2.0**-10, 1e-2),
    Dtype("float32", 6, FLOAT, 4, 2.0**-23, 1e-4),
    Dtype("float64", 7, FLOAT, 8, 2.0**-52, 1e-9),
    Dtype("complex32", 8, COMPLEX, 4, 2.0**-10, 1e-2),
    Dtype("complex64", 9, COMPLEX, 8, 2.0**-23, 1e-4),
    Dtype("complex128", 10, COMPLEX, 16, 2.0**-52, 1e-9),
    Dtype("bool", 11, BOOL, 1),
    Dtype("bfloat16", 15, FLOAT, 2, 2.0**-7, 3e-2),
    Dtype("uint16", 27, INTEGER, 2),
    Dtype("uint32", 28, INTEGER, 4),
    Dtype("uint64", 29, INTEGER, 8),
)
# Backends may round float32 to these.
HALVES = tuple(sorted(d.name for d in DTYPES if d.kind == FLOAT and d.size_bytes == 2))
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}


def dtype_name(dtype: object) -> str:
    """Return `float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def dtype_of(dtype: object) -> Dtype:
    """Return the facts about a dtype of torch, or about the name of one.

    Raises:
        EtdevError: The table doesn't have it.
    """
    name = dtype_name(dtype)
    if name not in _BY_NAME:
        what = "is a dtype that etdev doesn't know"
        raise EtdevError(name, what, f"use one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
