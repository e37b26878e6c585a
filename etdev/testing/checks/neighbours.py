"""Checks with other plugins, and with delegates that a program already has."""

from __future__ import annotations

from unittest.mock import patch

from etdev.lowerer import Lowerer
from etdev.registry import Registry
from etdev.schema.plan import MethodPlan
from etdev.testing.contract import contract
from etdev.testing.fakes import Accelerator, FakeAccelerator
from etdev.testing.programs import Layer, Pointwise, Scaled, noted
from etdev.testing.subject import Subject, delegates

# Nodes of a program that another plugin takes in turn, evenly spread over a larger program.
_MOST = 8


@contract(
    "later plugins change none of its claims, and earlier ones only the nodes that they took",
    "installing another backend must not disable this one",
)
def beside_others(subject: Subject) -> None:
    for program, plan in subject.claimed(Pointwise):
        alone = subject.owned(plan)
        one = Accelerator("rival", nodes=contested(plan, subject))
        two = Accelerator("other", ("sub",))
        for before in ((), (one,), (two,), (one, two)):
            behind = [rival for rival in (one, two) if rival not in before]
            beside = subject.lowerer(*behind, first=before).plan(program)["forward"]
            owned, earlier = subject.owned(beside), {rival.name for rival in before}
            assert before or owned == alone, "a plugin behind it changed what it has"
            taken = {entry.node for entry in beside.ledger if entry.owner in earlier}
            lost = alone - owned - taken
            # A group that lost one node may be dropped as a whole.
            assert not lost or owned, f"it lost {sorted(lost)}, which nobody took"
        subject.looked = True


def contested(plan: MethodPlan, subject: Subject) -> tuple[str, ...]:
    """Return the name of a node to take from a program, if there is one; at best not its own."""
    own, ops = subject.owned(plan), [e for e in plan.ledger if e.op.startswith("aten.")]
    names = sorted((entry.node for entry in ops if "sym_" not in entry.op), key=own.__contains__)
    return tuple(names[:1])


@contract(
    "it plans and compiles when an earlier plugin took any of its nodes",
    "the host drops groups that lost a node, and keeps the other groups",
)
def torn_claims(subject: Subject) -> None:
    for program, plan in subject.claimed(Pointwise, Layer):
        own = sorted(subject.owned(plan))
        for node in own[:: 1 + len(own) // _MOST]:
            subject.lower(subject.lowerer(first=[Accelerator("rival", nodes=(node,))]), program)
        subject.looked = True


@contract(
    "it claims no delegates of the given program, and no constants that only they read",
    "programs may have delegates before etdev lowers them",
)
def foreign_delegates(subject: Subject) -> None:
    for source, alone in subject.claimed(Pointwise, Scaled):
        products = [entry.node for entry in alone.ledger if entry.op == "aten.mul.Tensor"]
        nodes = tuple(products) or contested(alone, subject)
        earlier = Accelerator("earlier", nodes=nodes, constants=False)
        lowered = Lowerer([earlier], registry=Registry(), cache=False).lower(source)
        program = noted(lowered.edge.exported_program())
        weights = set(program.graph_signature.inputs_to_parameters)
        plan = subject.lowerer().plan(program)["forward"]
        said = [entry for entry in plan.ledger if entry.foreign]
        wrong = [v for e in said for v in e.verdicts if v.code == "foreign"]
        assert not wrong, "it claims the call of a delegate"
        mine = [p for p in plan.partitions if p.plugin == subject.name]
        held = weights & {constant.name for p in mine for constant in p.constants}
        assert not held, f"it claims {min(held, default='')}, which only a delegate reads"
        subject.looked |= bool(said)


@contract(
    "it takes over the nodes on which another plugin's compiler fails",
    "with on_failure = fallback, every plugin is asked again while a lowering goes on",
)
def others_failures(subject: Subject) -> None:
    for program, plan in subject.claimed(Pointwise):
        subject.compiling()
        lowerer = subject.lowerer(first=[Accelerator("rival")], on_failure="fallback")
        with patch.object(FakeAccelerator, "preprocess", side_effect=RuntimeError("it fails")):
            lowered, alone = lowerer.lower(program), subject.owned(plan)
        owned = subject.owned(lowered.plan["forward"])
        assert owned == alone, f"it got {sorted(owned)} of {sorted(alone)}"
        assert delegates(lowered), "nothing was compiled"
        subject.looked = True
