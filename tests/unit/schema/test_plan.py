"""Plans as text and back, and the ledger they carry."""

import json

import pytest

from etdev.errors import MethodError
from etdev.schema.device import Device
from etdev.schema.ledger import Entry, Ledger, Verdict
from etdev.schema.partition import CompileSpec, Partition
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.tensors import Constant, Copy, Tensor

OPS = {"conv": "aten.conv", "add": "aten.add", "add_1": "aten.add", "mul": "aten.mul"}


def entry(node, owner=None, partition=None, *verdicts):
    return Entry(node, OPS[node], owner, partition, verdicts)


def a_ledger():
    refused = Verdict("trt", "dtype", "int64 is not supported")
    return Ledger(
        (
            entry("conv", "trt", "trt_0", Verdict("trt", "claimed"), Verdict("cpu", "no-reason")),
            entry("add", "cpu", "cpu_0", refused, Verdict("cpu", "claimed")),
            entry("add_1", None, None, Verdict("trt", "no-reason"), Verdict("cpu", "no-reason")),
            entry("mul", None, None, Verdict("trt", "no-reason"), Verdict("cpu", "op")),
        )
    )


def a_plan():
    image = Tensor("image", "float32", ("s0", 3, 224, "2*s0"), 602112)
    flag = Tensor("flag", "bool", (), None)
    weight = Constant("p_w", "conv.weight", "parameter", "float32", (8, 3, 3, 3), 864)
    cache = Constant("b_k", "k", "buffer", "float16", (), 2, "add", True, "copied", 2)
    partition = Partition(
        name="trt_0",
        method="forward",
        plugin="trt",
        backend_id="TensorRTBackend",
        nodes=("conv",),
        inputs=(image, flag),
        outputs=(Tensor("conv", "float32", ("s0",), None),),
        constants=(weight, cache),
        device_types=("cuda",),
        compile_specs=(CompileSpec("blob", bytes(range(256))), CompileSpec("empty", b"")),
        split_by="mul",
    )
    guessed = partition.on(Device("cuda", 1), "assumed", "the engine names no device")
    cpu = Partition("cpu_0", "forward", "cpu", "XnnpackBackend", ("add",))
    copies = (Copy(image, Device("cpu"), Device("cuda", 1)),)
    order = ("trt_0", "foreign_call", "cpu_0")
    forward = MethodPlan("forward", (guessed, cpu), order, copies, ("add_1", "mul"), a_ledger())
    empty = MethodPlan("empty", (), (), (), (), Ledger(()))
    return Plan((forward, empty), (("trt", "0.1.0"), ("cpu", "")))


def test_a_plan_read_back_from_json_is_equal():
    assert Plan.from_json(a_plan().to_json()) == a_plan()


def test_an_empty_plan_read_back_is_equal():
    assert Plan.from_json(Plan(()).to_json()) == Plan(())


def test_a_plan_read_back_keeps_the_types_of_sizes():
    tensor = Plan.from_json(a_plan().to_json()).partitions[0].inputs[0]
    assert (tensor.shape, tensor.dynamic) == (("s0", 3, 224, "2*s0"), True)


def test_a_plan_is_plain_data_with_devices_as_text():
    plan = a_plan()
    assert json.loads(json.dumps(plan.to_dict())) == json.loads(plan.to_json())
    first, second = plan.to_dict()["methods"][0]["partitions"]
    assert (first["device"], first["device_source"]) == ("cuda:1", "assumed")
    assert (first["device_note"], second["device"]) == ("the engine names no device", "cpu")


def test_a_method_of_a_plan_is_found_by_name():
    plan = a_plan()
    assert plan["forward"] is plan.methods[0]
    assert [partition.name for partition in plan.partitions] == ["trt_0", "cpu_0"]


def test_a_plan_maps_the_names_of_its_methods_to_their_plans():
    plan = a_plan()
    assert dict(plan.items()) == {method.method: method for method in plan.methods}
    assert [*plan] == [*plan.keys()] == [method.method for method in plan.methods]
    assert "prefill" not in plan
    assert plan.get("prefill") is None


def test_an_unknown_method_of_a_plan_is_a_named_error():
    with pytest.raises(KeyError) as found:
        a_plan()["prefill"]
    assert str(found.value) == f"plan: has no method 'prefill'; it has {', '.join(a_plan())}"
    assert isinstance(found.value, MethodError)


def test_a_ledger_counts_owners_and_what_is_left_most_first():
    ledger = a_ledger()
    assert len(ledger) == 4
    assert list(ledger.owned().items()) == [("portable", 2), ("trt", 1), ("cpu", 1)]
    assert [entry.op for entry in ledger if entry.falls_back] == ["aten.add", "aten.mul"]
