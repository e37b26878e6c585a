"""Claims and what they are made of: checked on the way in, frozen, compared by content."""

from types import MappingProxyType, SimpleNamespace

import pytest
from attrs.exceptions import FrozenInstanceError

from etdev.errors import ClaimError
from etdev.schema.claims import Claim, Group, KeepWhole, Refusal
from etdev.schema.compile_specs import CompileSpec


def node(name):
    return SimpleNamespace(name=name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Group("add"), "claim: 'add' is not a sequence of nodes; give a list of nodes"),
        (lambda: Group(3), "claim: 3 is not a sequence of nodes; give a list of nodes"),
        (lambda: Group([]), "claim: Group.nodes is empty; leave it out instead"),
        (lambda: Group([3]), "claim: 3 is not a node; give torch.fx nodes or their names"),
        (lambda: Group([""]), "claim: '' is not a node; give torch.fx nodes or their names"),
        (lambda: Group(b"a"), "claim: 97 is not a node; give torch.fx nodes or their names"),
        (lambda: Refusal(None, "op"),
         "claim: None is not a node; give torch.fx nodes or their names"),
        (lambda: Refusal("add", ""),
         "claim: Refusal.code is empty; name one"),
        (lambda: Claim("", []),
         "claim: Claim.backend_id is empty; name one"),
        (lambda: Claim("B", "add"), "claim: 'add' is not a sequence; give a list or a tuple"),
        (lambda: Claim("B", Group(["add"])),
         "claim: Group(nodes=('add',), why='') is not a sequence; give a list or a tuple"),
        (lambda: Claim("B", [], compile_specs=["fast"]),
         "claim: 'fast' is not a compile spec; give a mapping of key to bytes"),
        (lambda: Claim("B", [], compile_specs=3),
         "claim: 3 is not a sequence; give a list or a tuple"),
        (lambda: CompileSpec("", b""),
         "claim: CompileSpec.key is empty; name one"),
        (lambda: Claim("B", ["add"]),
         "claim: Claim.groups has 'add', which is not a Group; give a list of Groups"),
        (lambda: Claim("B", [], [Group(["add"])]),
         "claim: Claim.refusals has Group(nodes=('add',), why=''), which is not a Refusal; "
         "give a list of Refusals"),
        (lambda: Claim("B", [], merge=1), "claim: Claim.merge is 1; give True or False"),
        (lambda: Claim("B", [], named_data="no"),
         "claim: Claim.named_data is 'no'; give True or False"),
        (lambda: Claim("B", [], compile_specs={"fast": 3}),
         "claim: the compile spec 'fast' is 3; give bytes, such as b\"1\""),
        (lambda: Claim("B", [], compile_specs={"fast": "1"}),
         "claim: the compile spec 'fast' is '1'; give bytes, such as b\"1\""),
    ],
)  # fmt: skip
def test_a_claim_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(ClaimError) as caught:
        make()
    assert str(caught.value) == message


def test_nodes_are_given_as_nodes_or_names_and_kept_once_in_order():
    assert Group([node("mul"), "add", node("add"), "mul"]).nodes == ("mul", "add")


def test_nodes_of_a_torch_graph_are_taken_by_name():
    from torch.fx import Graph

    assert Group([Graph().placeholder("x")]) == Group(["x"])


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


def test_a_claim_keeps_nothing_of_the_list_it_was_made_from():
    groups = [Group(["add"])]
    claim = Claim("B", groups)
    groups.clear()
    assert claim.groups == (Group(["add"]),)


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
    with pytest.raises(ClaimError) as caught:
        Claim("B", [], compile_specs=[spec])
    assert (
        str(caught.value)
        == f"claim: {spec!r} is not a compile spec; give a mapping of key to bytes"
    )


def test_ops_are_kept_whole_where_the_check_says_so():
    wish = KeepWhole(["linear"], lambda node: node.name == "big")
    wanted = [
        wish.wants(SimpleNamespace(target=op, name=name))
        for op, name in [("linear", "big"), ("linear", "small"), ("add", "big")]
    ]
    assert wanted == [True, False, False]


def test_without_a_check_every_such_op_is_kept_whole():
    assert KeepWhole(["linear"]).wants(SimpleNamespace(target="linear"))
