"""The ledger has the precision of each node, and the plan the conversions at borders."""

from __future__ import annotations

import pytest
import torch
from support.models import precisions
from support.models.small import Function
from support.quirks import model
from torch import nn

from etdev import Lowerer, Pin, diff
from etdev.testing.fakes import Accelerator

FLOAT = Accelerator("float", ops=("tanh", "sin"))
X = (torch.randn(2, 4),)


def planned(model, plugins, **options):
    """The plan of a model's only method."""
    (method,) = Lowerer(plugins, **options).plan(*model).methods
    return method


def conversions(method):
    """Each conversion: the borders, the dtypes, and the bytes that cross."""
    return [(c.source, c.target, c.forms, c.tensor.size_bytes) for c in method.conversions]


def precision(method, op):
    """The precisions of the nodes of an op."""
    return {entry.precision for entry in method.ledger if op in entry.op}


@pytest.mark.suite
def test_an_int8_island_is_converted_where_it_begins_and_ends():
    method = planned(precisions.island("sin"), [FLOAT, "cpu"])
    assert method.ledger.precisions() == {"cpu": {"int8": 16}, "float": {"float32": 2}}
    assert conversions(method) == [
        ("float_0", "cpu_0", ("float32", "int8"), 1024),
        ("cpu_0", "float_1", ("int8", "float32"), 1024),
    ]
    assert method.summary == "forward: 3 delegates, cpu 16, float 2, 2 conversions"


@pytest.mark.suite
def test_a_quantised_pattern_that_is_torn_computes_in_floats():
    # Its quantisers stay in delegates, and its convolutions leave them.
    pins = [Pin("portable", op="aten.convolution.*")]
    taker = Accelerator("taker", ops=("quantize_per_tensor", "relu", "add", "tanh", "sin"))
    method = planned(precisions.island(), [taker], pins=pins)
    assert precision(method, "convolution") == {"float32"}
    # One of its inputs is dequantised before the convolutions, in another partition.
    assert precision(method, "add") == {"float32"}
    forms = {(c.source == "portable", c.target == "portable"): c.forms for c in method.conversions}
    assert forms[False, True] == ("int8", "float32")
    assert forms[True, False] == ("float32", "int8")


def test_dynamic_layers_quantise_what_they_read_at_every_run():
    method = planned(precisions.words(), [FLOAT, "cpu"])
    linear = [entry.node for entry in method.ledger if "linear" in entry.op]
    assert {method.ledger[node].precision for node in linear} == {"8da4w"}
    assert precision(method, "quantize") == precision(method, "choose_qparams") == {"8da4w"}
    assert precision(method, "embedding") == {"float32"}
    assert [(c.target, c.forms) for c in method.conversions] == [
        (method.ledger[node].partition, ("float32", "int8")) for node in linear
    ]


def test_weights_in_integers_alone_are_said_to_be():
    table = model(
        lambda net, x: x @ (net.weight.to(x.dtype) * 0.1),
        weight=torch.randint(-8, 8, (4, 4), dtype=torch.int8),
    )
    method = planned((table, X), [Accelerator("all")], simplify=False)
    assert precision(method, "mm") == precision(method, "mul") == {"int8w"}
    # The product alone gets a weight in floats.
    method = planned((table, X), [Accelerator("product", ops=("mm",))], simplify=False)
    assert precision(method, "mm") == {"float32"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_casts_are_conversions(dtype):
    name = str(dtype).removeprefix("torch.")
    method = planned((precisions.Cast(dtype), X), [FLOAT])
    assert precision(method, "mm") == {name}
    assert precision(method, "tanh") == precision(method, "sin") == {"float32"}
    assert conversions(method)[0][1:3] == ("portable", ("float32", name))
    assert conversions(method)[-1][:3] == ("portable", "float_1", (name, "float32"))


def test_integers_have_their_dtype_and_comparisons_that_of_what_they_read():
    counts = Function(lambda x, n: (torch.argmax(x, 1) + n, x > 0))
    method = planned((counts, (*X, torch.arange(2))), None)
    assert [precision(method, op) for op in ("argmax", "add", "gt")] == [
        {"float32"},
        {"int64"},
        {"float32"},
    ]


@pytest.mark.suite
def test_each_method_has_its_own():
    model = {"quantised": precisions.island("sin"), "plain": (nn.Linear(4, 4), X)}
    plan = Lowerer([FLOAT, "cpu"]).plan(model)
    assert [len(plan[name].conversions) for name in ("plain", "quantised")] == [0, 2]
    assert plan["plain"].ledger.precisions() == {"cpu": {"float32": 1}}


def test_a_difference_names_precisions_and_conversions():
    before = Lowerer([FLOAT, "cpu"]).plan(precisions.Island().eval(), precisions.island()[1])
    after = Lowerer([FLOAT, "cpu"]).plan(*precisions.island("sin"))
    figures = {each.what: (each.before, each.after) for each in diff(before, after).figures}
    assert figures["forward: nodes of cpu in int8"] == (0, 16)
    assert figures["forward: conversions at borders"] == (0, 2)
    assert figures["forward: bytes converted"] == (0, 2048)
    moves = {move.op: (move.before, move.after) for move in diff(before, after).nodes}
    assert moves["aten.add.Tensor"] == ("cpu on cpu", "cpu on cpu in int8")
