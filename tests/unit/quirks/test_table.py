"""The table of upstream's faults: its rows are well formed, and a stage applies them in order."""

import re

import pytest
import torch
from attrs import evolve
from support.models.small import Function
from support.quirks.rows import ROWS

from etdev import KeepWhole, Lowerer, Plan, hookimpl
from etdev.errors import EtdevError, EtdevWarning, LoweringError
from etdev.graph import op_name
from etdev.quirks import QUIRKS
from etdev.quirks.table import Fixer, Table
from etdev.report import presenters
from etdev.schema.quirk import Nodes, Quirk, Rejection, SourceDifference
from etdev.schema.stages import PREPARE, TO_EDGE, VALIDATE

aten = torch.ops.aten


REFUSAL = Rejection("{op} ({found.name}) of {method!r} goes wrong{where}", "don't")


def row(**given):
    known = {
        "name": "any",
        "stage": PREPARE,
        "summary": "Anything goes wrong.",
        "upstream": "pytorch/executorch#1",
        "find": Nodes((aten.sin.default,)),
        "refusal": REFUSAL,
    }
    return Quirk(**{**known, **given})


def exported():
    class Waves(torch.nn.Module):
        def forward(self, x):
            return torch.sin(torch.cos(torch.sin(x)))

    return torch.export.export(Waves(), (torch.ones(2),))


def test_rows_have_names_of_their_own():
    names = [quirk.name for quirk in QUIRKS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("quirk", ROWS.values(), ids=lambda quirk: quirk.name)
def test_a_row_is_well_formed(quirk):
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", quirk.name)
    assert re.fullmatch(r"[\w`].*[^.]\.", quirk.summary)
    assert not re.search(r"\.\s", quirk.summary)
    reference, report = r"pytorch/\w+#\d+[^;]*", r"report written \d{4}-\d\d-\d\d"
    assert re.fullmatch(rf"({reference}|{report}); (torch|executorch)/.+", quirk.upstream)


def test_a_row_is_checked_on_the_way_in():
    for given, why in (
        ({"refusal": None}, "does nothing"),
        ({"during": lambda found: None}, "has `during` at another stage"),
    ):
        with pytest.raises((EtdevError, ValueError), match=why):
            row(**given)


def test_a_row_whose_fault_is_fixed_is_left_out():
    assert Table([row(fixed="torch 2"), row(since="torch 99")]).rows == ()
    assert len(Table([row(), row(since="torch 2", fixed="torch 99")]).rows) == 2


def test_a_refusal_names_method_node_line_and_cure():
    with pytest.raises(LoweringError) as caught:
        Fixer(Table([row()])).apply(PREPARE, exported(), "forward")
    where = r"at test_table.py:\d+; don't"
    text = rf"prepare: aten.sin.default \(sin\) of 'forward' goes wrong {where}"
    assert re.fullmatch(text, str(caught.value))


def test_a_warning_is_said_of_each():
    fixer = Fixer(Table([row(refusal=evolve(REFUSAL, warns=True))]))
    with pytest.warns(EtdevWarning) as said:
        fixer.apply(PREPARE, exported(), "forward")
    assert len(said) == 2


def test_a_stage_looks_again_after_a_fix():
    seen = []

    def fix(program, found):
        seen.append([node.name for node in found])
        return exported()

    fixer = Fixer(
        Table([row(fix=fix), row(name="other", fix=fix, find=Nodes(only=lambda n: "s" in n.name))])
    )
    program = exported()
    assert fixer.apply(PREPARE, program, "forward") is not program
    assert fixer.apply(VALIDATE, program, "forward") is program
    assert seen == [["sin", "sin_1"], ["sin", "cos", "sin_1"]]


def test_a_fix_that_fails_refuses():
    def fix(program, found):
        raise ValueError("no way")

    fixer = Fixer(
        Table([row(fix=fix, refusal=evolve(REFUSAL, what="{found.name} can't be fixed ({why})"))])
    )
    with pytest.raises(LoweringError, match=r"sin can't be fixed \(ValueError: no way\); don't"):
        fixer.apply(PREPARE, exported(), "forward")


def test_a_difference_to_the_program_before_is_found():
    def longer(program, before):
        return list(program.graph.nodes)[len(before.graph.nodes) :]

    refusal = evolve(REFUSAL, what="{names} came later")
    fixer = Fixer(Table([row(find=SourceDifference(longer), refusal=refusal)]))
    before, after = exported(), exported()
    assert fixer.apply(PREPARE, before, "forward") is before
    after.graph.placeholder("late")
    with pytest.raises(LoweringError, match="late came later"):
        fixer.apply(PREPARE, after, "forward", before)


def test_a_row_that_acts_is_in_the_plan_with_its_nodes_and_line():
    class Swap(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("one", torch.ones(2))
            self.register_buffer("other", torch.zeros(2))

        def forward(self, x):
            one = self.one.clone()
            self.one.copy_(self.other)
            self.other.copy_(one)
            return x + self.other

    lowerer = Lowerer([], cache=False)
    plan = lowerer.plan(Swap(), (torch.ones(2),))
    rows = {fix.row: fix for fix in plan["forward"].fixes}
    assert {"reused-sources", "initial-values"} <= rows.keys()
    assert rows["initial-values"].stage == "validate"
    assert Plan.from_json(plan.to_json()) == plan
    assert "fixed" in {sheet.columns[0] for sheet in presenters.sheets(plan)}


def test_a_row_that_acts_on_pieces_is_listed_under_the_method_of_their_op():
    class Writes:
        name = "writer"

        @hookimpl
        def claim_nodes(self):
            return None

        @hookimpl
        def keep_whole(self):
            return KeepWhole((), decomposes=(aten.hardswish.default,))

        @hookimpl
        def decompose(self, node):
            return torch.sin if op_name(node) == "aten.hardswish.default" else None

        @hookimpl
        def quirks(self):
            return [row(name="sines", stage=TO_EDGE, fix=lambda program, found: program)]

    inputs = (torch.ones(2),)
    bent, cut = Function(torch.nn.functional.hardswish), Function(torch.relu)
    plan = Lowerer([Writes()], cache=False).plan({"bent": (bent, inputs), "cut": (cut, inputs)})
    assert [fix.row for fix in plan["bent"].fixes] == ["sines"]
    assert plan["cut"].fixes == ()


def test_rows_of_emission_are_in_the_plan_once_the_program_is_emitted():
    lowered = Lowerer([], cache=False).lower(Function(lambda x: x.nonzero()), (torch.eye(2),))
    assert lowered.plan["forward"].fixes == ()
    for _ in range(2):
        lowered.to_executorch()
        assert {fix.row for fix in lowered.plan["forward"].fixes} == {"unknown-orders"}
        assert len(lowered.plan["forward"].fixes) == 1
