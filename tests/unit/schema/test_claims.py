"""Claims and what they are made of: checked on the way in, frozen, compared by content."""

from types import MappingProxyType, SimpleNamespace

import pytest
from attrs.exceptions import FrozenInstanceError

from etdev.errors import ClaimError, PinError
from etdev.schema.claims import Claim, Group, KeepWhole, Refusal
from etdev.schema.partition import CompileSpec
from etdev.schema.pins import Pin


def node(name):
    return SimpleNamespace(name=name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Group("add"), "'add' is not a sequence"),
        (lambda: Group(3), "3 is not a sequence"),
        (lambda: Group([]), "Length of 'nodes' must be >= 1: 0"),
        (lambda: Group([3]), "3 is not a node"),
        (lambda: Group([""]), "'' is not a node"),
        (lambda: Refusal(None, "op"), "None is not a node"),
        (lambda: Refusal("add", ""), "code is ''"),
        (lambda: Claim("", []), "backend_id is ''"),
        (lambda: Claim("B", "add"), "'add' is not a sequence"),
        (lambda: Claim("B", Group(["add"])), "is not a sequence"),
        (lambda: Claim("B", [], compile_specs=["fast"]), "'str' object has no attribute 'key'"),
        (lambda: Claim("B", [], compile_specs=3), "3 is not a sequence"),
        (lambda: CompileSpec("", b""), "key is ''"),
        (lambda: Claim("B", ["add"]), "'groups' must be <class .*Group'> \\(got 'add'"),
        (lambda: Claim("B", [], [Group(["add"])]), "'refusals' must be <class .*Refusal'>"),
        (lambda: Claim("B", [], device_types="cuda"), "'cuda' is not a sequence"),
        (lambda: Claim("B", [], device_types=["gpu"]), "unknown type 'gpu'"),
        (lambda: Claim("B", [], merge=1), "'merge' must be <class 'bool'> \\(got 1"),
        (lambda: Claim("B", [], last_resort=True), "is a last resort for B"),
        (lambda: Claim("B", [], compile_specs={"fast": 3}), "'value' must be <class 'bytes'>"),
    ],
)
def test_a_claim_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(ClaimError, match=message):
        make()


def test_nodes_are_given_as_nodes_or_names_and_kept_once_in_order():
    assert Group([node("mul"), "add", node("add"), "mul"]).nodes == ("mul", "add")


def test_a_refusal_takes_a_node_or_its_name():
    assert Refusal(node("add"), "dtype") == Refusal("add", "dtype", "")


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        (Group(["add"]), "nodes"),
        (Refusal("add", "op"), "code"),
        (Claim("B", []), "groups"),
        (CompileSpec("key", b""), "value"),
        (KeepWhole([]), "ops"),
    ],
)
def test_a_value_can_not_be_changed(value, attribute):
    with pytest.raises(FrozenInstanceError):
        setattr(value, attribute, ())


def test_claims_of_equal_content_are_equal_and_hash_alike():
    one = Claim("B", [Group(["add"])], [Refusal("mul", "op")], {"fast": b"1"})
    two = Claim("B", (Group((node("add"),)),), (Refusal("mul", "op"),), [CompileSpec("fast", b"1")])
    assert (one, hash(one)) == (two, hash(two))
    assert one != Claim("B", [Group(["add"])])


@pytest.mark.parametrize(
    "specs",
    [
        {"fast": b"1"},
        MappingProxyType({"fast": b"1"}),
        [CompileSpec("fast", b"1")],
        [SimpleNamespace(key="fast", value=bytearray(b"1"))],
    ],
)
def test_compile_specs_come_as_a_mapping_or_as_objects(specs):
    assert Claim("B", [], compile_specs=specs).compile_specs == (CompileSpec("fast", b"1"),)


def test_compile_specs_of_executorch_become_ours():
    from executorch.exir.backend.compile_spec_schema import CompileSpec as Theirs

    specs = Claim("B", [], compile_specs=[Theirs("fast", b"1")]).compile_specs
    assert specs == (CompileSpec("fast", b"1"),)


@pytest.mark.parametrize("value", [3, "text", None])
def test_a_compile_spec_object_without_bytes_is_refused(value):
    spec = SimpleNamespace(key="fast", value=value)
    with pytest.raises(ClaimError, match="a bytes-like object is required"):
        Claim("B", [], compile_specs=[spec])


def test_ops_are_kept_whole_where_the_check_says_so():
    wish = KeepWhole(["linear"], lambda node: node.name == "big")
    wanted = [
        wish.wants(SimpleNamespace(target=op, name=name))
        for op, name in [("linear", "big"), ("linear", "small"), ("add", "big")]
    ]
    assert wanted == [True, False, False]


def test_without_a_check_every_such_op_is_kept_whole():
    assert KeepWhole(["linear"]).wants(SimpleNamespace(target="linear"))


@pytest.mark.parametrize("values", [{"plugin": 3}, {"plugin": ""}, {"module": 3}, {"modul": "x"}])
def test_a_wrong_pin_is_an_error_of_etdev(values):
    with pytest.raises(PinError, match=next(iter(values))):
        Pin(**{"plugin": "cpu", "op": "aten.add.*", **values})
