"""The matrix: every model on every order of the backends that run on a CPU, run by ExecuTorch.

A slice of it runs with the other tests, all of it with `make matrix`. A cell is lowered, saved, run
and compared with eager PyTorch, or refused with the text that stands here.
"""

from __future__ import annotations

import functools
import re
from collections import Counter

import pytest
import torch
from executorch.runtime import Runtime
from support.models.matrix import LARGE, SMALL

from etdev import Lowerer
from etdev.errors import EtdevError
from etdev.pte.read import read
from etdev.upstream.trees import flat
from etdev.verify.output_error import compare

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino.plugin import OpenVinoPlugin

# Without products, so that float32 stays float32 on every CPU and XNNPACK has something to do.
RESTRICTED = OpenVinoPlugin(precision="f32")
ORDERS = {
    "portable": [],
    "xnnpack": ["cpu"],
    "openvino": [RESTRICTED],
    "xnnpack, openvino": ["cpu", RESTRICTED],
    "openvino, xnnpack": [RESTRICTED, "cpu"],
    "openvino in bf16": [OpenVinoPlugin(precision="bf16")],
}
# Of eager's largest value, where the CPU rounds to bfloat16; case.tolerance elsewhere.
BF16_TOLERANCE = 3e-2
# Delegates of XNNPACK and of OpenVINO, in the order of ORDERS.
DELEGATES = {
    "mlp": "0+0 2+0 0+1 2+1 2+1 0+1",
    "conv_net": "0+0 1+0 0+2 1+0 3+2 0+1",
    "transformer_block": "0+0 4+0 0+7 3+3 6+7 0+1",
    "tied_embedding": "0+0 2+0 0+1 2+2 1+1 0+1",
    "kv_cache": "0+0 5+0 0+4 4+2 1+4 0+2",
    "cond": "0+0 2+0 0+2 2+0 2+2 0+2",
    "map_rows": "0+0 2+0 0+2 2+0 2+2 0+2",
    "dynamic_batch": "0+0 2+0 0+0 2+0 2+0 0+0",
    "dynamic_attention": "0+0 10+0 0+0 10+0 10+0 0+0",
    "two_methods": "0+0 4+0 0+3 4+2 2+3 0+2",
    "int8_conv_net": "0+0 1+0 0+3 1+0 2+1 0+2",
    "minilm_l6": "0+0 17+0 0+37 17+17 36+37 0+1",
    "resnet_18": "0+0 1+0 0+17 1+0 17+17 0+1",
}
# Bytes of constants that kernels, branches or other backends make the .pte store again.
STORED_AGAIN = {
    ("tied_embedding", "xnnpack"): 32768,
    ("tied_embedding", "openvino"): 32768,
    ("tied_embedding", "xnnpack, openvino"): 32768,
    ("tied_embedding", "openvino, xnnpack"): 32768,
    # In bfloat16 OpenVINO misreads the table of an embedding beside a product; a kernel has it.
    ("tied_embedding", "openvino in bf16"): 32768,
    ("map_rows", "xnnpack"): 32,
    ("map_rows", "xnnpack, openvino"): 32,
    ("map_rows", "openvino, xnnpack"): 32,
    ("map_rows", "openvino in bf16"): 32,
    # Constants that simplification folded, of which two delegates have a copy.
    ("minilm_l6", "openvino"): 20,
}
REFUSED = {
    "while_loop": "emit: ExecuTorch has neither while_loop nor maps of several tensors, "
    "and no plugin took while_loop at matrix.py:LINE; write it with torch's scan and a fixed "
    "number of steps, or concatenate the tensors",
}
# Most models between two backends, one with state the other way round, and one in all orders. What
# is refused is refused in the same words in every order.
SLOW = ("dynamic_attention", "int8_conv_net", "transformer_block")
QUICK = [
    (model, order)
    for model in SMALL
    for order in ORDERS
    if (order == "openvino, xnnpack" and model not in SLOW)
    or (order == "xnnpack, openvino" and model == "kv_cache")
    or (model == "conv_net" and "bf16" not in order)
]
REST = [(model, order) for model in (*SMALL, *LARGE) for order in ORDERS]
CELLS = [pytest.param(*cell, marks=[] if cell in QUICK else [pytest.mark.matrix]) for cell in REST]


@functools.lru_cache(maxsize=1)
def case(model):
    """The last model, exported; the cells of a model follow each other."""
    return {**SMALL, **LARGE}[model]()


@pytest.mark.parametrize(("model", "order"), CELLS)
def test_a_cell_runs_as_eager_or_is_refused(model, order, tmp_path):
    path = tmp_path / "cell.pte"
    lowerer, programs = Lowerer(ORDERS[order]), dict(case(model).programs)
    if model in REFUSED:
        with pytest.raises(EtdevError) as caught:
            lowerer.lower(programs).save(path)
        assert re.sub(r"(?<=\.py:)\d+", "LINE", str(caught.value)) == REFUSED[model]
        return
    lowered = lowerer.lower(programs)
    lowered.save(path)
    assert_runs_as_eager(path, case(model), BF16_TOLERANCE if "bf16" in order else None)
    column = list(ORDERS).index(order)
    again = STORED_AGAIN.get((model, order), 0)
    facts = read(path)
    assert delegates_of(facts) == DELEGATES[model].split()[column]
    assert all(method.host_to_device == method.device_to_host == 0 for method in facts.methods)
    assert sum(method.copied_bytes for method in lowered.plan.methods) == again
    # Some bytes of slack for scalars that the conversion makes constants of.
    assert facts.constants_bytes + facts.named_bytes <= case(model).constant_bytes + again + 64


def assert_runs_as_eager(path, case, tolerance):
    program = Runtime.get().load_program(path)
    methods = {name: program.load_method(name) for name in case.programs}
    eager = case.eager()
    for method, inputs in case.calls:
        with torch.no_grad():
            expected = flat(eager[method](*inputs))
        outputs = methods[method].execute([value.clone() for value in inputs])
        for difference in compare(outputs, expected):
            assert difference.max_error <= (tolerance or case.tolerance) * difference.max_value


def delegates_of(facts):
    count = Counter(item.backend_id for method in facts.methods for item in method.delegates)
    return f"{count['XnnpackBackend']}+{count['OpenvinoBackend']}"
