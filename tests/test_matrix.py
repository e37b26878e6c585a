"""The matrix: every model on every order of the backends that run on a CPU, in ExecuTorch's runtime.

A slice of it runs with all other tests, the whole with `make matrix`. Each cell is lowered, saved,
run and compared with eager PyTorch, or refused with a reason that stands here.
"""

from __future__ import annotations

import functools

import pytest
import torch
from executorch.runtime import Runtime
from matrix_models import LARGE, SMALL, Case

from etdev import Lowerer
from etdev.errors import LoweringError
from etdev.reader import read
from etdev.runner import compare, flat

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino.plugin import OpenVinoPlugin

# Restricted: without products and convolutions, so that float32 stays float32 on every CPU and
# something is left for XNNPACK.
RESTRICTED = OpenVinoPlugin(precision="f32")
ORDERS = {
    "portable": [],
    "xnnpack": ["cpu"],
    "openvino": [RESTRICTED],
    "xnnpack, openvino": ["cpu", RESTRICTED],
    "openvino, xnnpack": [RESTRICTED, "cpu"],
    "openvino in bf16": [OpenVinoPlugin()],
}
# Of eager's largest value, where a CPU with bfloat16 rounds each product's inputs to 8 bits.
BF16_TOLERANCE = 3e-2
# Which kernels, delegates or control flow store a constant again, in bytes; all else is stored once.
STORED_AGAIN: dict[str, dict[str, int]] = {}
# Order of the columns of ORDERS.
DELEGATES: dict[str, tuple[int, ...]] = {}
REFUSED = {
    "while_loop": "to_executorch: ExecuTorch failed with InternalError: Failed with error: "
    "Unsupported control flow operator: while_loop; the cause is chained below",
}
CELLS = [
    pytest.param(model, order, marks=[pytest.mark.matrix] if large else [], id=f"{model}-{order}")
    for models, large in ((SMALL, False), (LARGE, True))
    for model in models
    for order in ORDERS
]


@functools.lru_cache(maxsize=1)
def case(name: str) -> Case:
    return {**SMALL, **LARGE}[name]()
