"""The kit: a plugin that keeps the contract passes, each broken one fails on exactly its sin."""

import json
import time

import pytest
import torch
from attrs import define, field

from etdev import Claim, Device, Group, Probe, Refusal, hookimpl
from etdev.graph import op_name
from etdev.testing import CHECKS, Requirements, run

# Those that compile nothing.
PLANNING = (
    "probe", "claims", "callers_own", "repeatable", "beside_others", "foreign_delegates", "reasons",
    "methods",
)  # fmt: skip


@define(eq=False)
class Adder:
    """Gives XNNPACK the float32 additions; keeps the contract."""

    name: str = "adder"

    @hookimpl
    def claim_nodes(self, program, method, taken):
        import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        mine = [node for node in calls if self.fits(node)]
        refusals = [Refusal(node, "op", op_name(node)) for node in calls if node not in mine]
        return Claim("XnnpackBackend", [Group([node]) for node in mine], refusals)

    def fits(self, node):
        values = [getattr(argument, "meta", {}).get("val") for argument in node.args]
        right = all(getattr(value, "dtype", None) == torch.float32 for value in values)
        return op_name(node) == "aten.add.Tensor" and right and not node.kwargs

    @hookimpl
    def claim_constants(self, partition):
        return [constant for constant in partition.constants if not constant.mutated]


def with_claim(change):
    """An adder whose claim is changed by a function of the program and the claim."""

    class Changed(Adder):
        @hookimpl
        def claim_nodes(self, program, method, taken):
            return change(program, super().claim_nodes(program, method, taken), method)

    return Changed


def calls(program):
    return [node for node in program.graph.nodes if node.op == "call_function"]


def zeroes(program, claim, method):
    for value in program.state_dict.values():
        value.data.zero_()
    return claim


def rewires(program, claim, method):
    calls(program)[0].meta["mine"] = True
    return claim


def changes_dtype(program, claim, method):
    torch.set_default_dtype(torch.float64)
    return claim


def contradicts(program, claim, method):
    refusals = [Refusal(name, "op") for group in claim.groups for name in group.nodes]
    return Claim(claim.backend_id, claim.groups, refusals)


def one_group(program, claim, method):
    return Claim(claim.backend_id, [Group([n for g in claim.groups for n in g.nodes])])


def borrows_a_code(program, claim, method):
    return Claim(claim.backend_id, [], [Refusal(node, "lost") for node in calls(program)])


def names_strangers(program, claim, method):
    return Claim(claim.backend_id, [Group(["aten_add_tensor_99"])])


def says_nothing(program, claim, method):
    return Claim(claim.backend_id, claim.groups)


def prints(program, claim, method):
    print("claiming")
    return claim


def takes_delegates(program, claim, method):
    foreign = [node for node in calls(program) if op_name(node) == "call_delegate"]
    groups = [*claim.groups, *(Group([node]) for node in foreign)]
    refusals = [refusal for refusal in claim.refusals if refusal.code == "op"]
    names = {node.name for node in foreign}
    return Claim(claim.backend_id, groups, [r for r in refusals if r.node not in names])


class Freezer(Adder):
    @hookimpl
    def claim_constants(self, partition):
        return partition.constants


@define(eq=False)
class Fickle(Adder):
    """Takes nothing of a method that it has seen before."""

    seen: set = field(factory=set)

    @hookimpl
    def claim_nodes(self, program, method, taken):
        claim = super().claim_nodes(program, method, taken)
        if method not in self.seen:
            self.seen.add(method)
            return claim
        return Claim("XnnpackBackend", [], [Refusal(node, "mood") for node in calls(program)])


class Timid(Adder):
    @hookimpl
    def claim_nodes(self, program, method, taken):
        claim = super().claim_nodes(program, method, taken)
        if not taken:
            return claim
        return Claim("XnnpackBackend", [], [Refusal(node, "busy") for node in calls(program)])


@define(eq=False)
class Forgetful(Adder):
    """Remembers what it took of the first method, for all methods."""

    seen: list = field(factory=list)

    @hookimpl
    def claim_nodes(self, program, method, taken):
        claim = super().claim_nodes(program, method, taken)
        self.seen.append(method)
        if self.seen[0] == method:
            return claim
        return Claim("XnnpackBackend", [], [Refusal(node, "method") for node in calls(program)])


class Slow(Adder):
    @hookimpl
    def probe(self):
        time.sleep(1.1)
        return Probe()


class Liar(Adder):
    @hookimpl
    def payload_device(self, backend_id, payload):
        return Device("cuda", 1)


class Hider(Adder):
    @hookimpl
    def compile_context(self):
        import contextlib

        return contextlib.suppress(RuntimeError)


SINS = {
    "zeroes weights": (with_claim(zeroes), "claims", "changed the values of"),
    "writes to nodes": (with_claim(rewires), "claims", "changed meta['mine'] of"),
    "changes the dtype": (with_claim(changes_dtype), "claims", "changed torch's default dtype"),
    "contradicts itself": (with_claim(contradicts), "claims", "do one of the two"),
    "tears the graph": (with_claim(one_group), "claims", "lies between them"),
    "borrows a code": (with_claim(borrows_a_code), "claims", "which is the host's"),
    "names strangers": (with_claim(names_strangers), "claims", "'aten_add_tensor_99'"),
    "freezes state": (Freezer, "claims", "would freeze the buffer 'total'"),
    "says nothing": (with_claim(says_nothing), "reasons", "it says nothing of aten_"),
    "prints": (with_claim(prints), "callers_own", "it printed 'claiming"),
    "takes delegates": (with_claim(takes_delegates), "foreign_delegates", "claims the call"),
    "is fickle": (Fickle, "repeatable", "different plans"),
    "is timid": (Timid, "beside_others", "which nobody took"),
    "forgets the method": (Forgetful, "methods", "gets another plan"),
    "is slow": (Slow, "probe", "it took 1."),
    "lies about devices": (Liar, "devices", "planned on cpu, the payload is for cuda:1"),
    "hides errors": (Hider, "failures", "compile_context for cpu hid an error"),
}


@pytest.mark.parametrize("sin", SINS)
def test_a_broken_plugin_fails_on_exactly_its_sin(sin):
    make, check, text = SINS[sin]
    asked = [one for one in CHECKS if one.name in (*PLANNING, check)]
    board = run(make, checks=asked)
    assert board.broken == (check,), board.results
    (result,) = [result for result in board.results if result.outcome == "broken"]
    (broken,) = [one for one in CHECKS if one.name == check]
    assert text in result.text
    assert result.text.startswith(f"{check}: {broken.wants}\n  why: {broken.why}\n  what happened:")
    assert check == "probe" or "the smallest graph:\ngraph():\n" in result.text
    if check == "claims":
        skipped = {r.text for r in board.results if r.outcome == "skipped"}
        assert skipped == {"it doesn't keep to claims"}


def test_a_plugin_that_keeps_the_contract_passes_all_of_it():
    board = run(Adder)
    assert {r.check: r.text for r in board.results if r.outcome != "kept"} == {}
    assert board.badge == f"etdev hooks 1: {len(CHECKS)} of {len(CHECKS)} kept"
    data = json.loads(board.to_json())
    assert (data["plugin"], data["badge"], data["hooks"]) == ("adder", board.badge, 1)
    assert [row["check"] for row in data["results"]] == [check.name for check in CHECKS]


def test_what_is_not_asked_is_visible():
    asked = [check for check in CHECKS if check.name in ("probe", "reasons", "devices")]
    board = run(with_claim(says_nothing), Requirements(reasons=False, compiles=False), checks=asked)
    assert [(r.check, r.outcome, r.text) for r in board.results] == [
        ("probe", "kept", ""),
        ("reasons", "skipped", "requirements.reasons is off"),
        ("devices", "skipped", "requirements.compiles is off"),
    ]
    assert board.badge == "etdev hooks 1: 1 of 3 kept, 2 skipped"
