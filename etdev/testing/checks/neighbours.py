"""Checks with other plugins, and with delegates that a program already has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from executorch.exir.lowered_backend_module import get_lowered_submodules

from etdev.testing import programs
from etdev.testing.contract import contract
from etdev.testing.fakes import Accelerator, unbuildable
from etdev.testing.programs import Layer, Pointwise, Scaled, exported
from etdev.testing.subject import Skipped, Subject


@contract(
    "later plugins change none of its claims, and earlier ones only the nodes that they took",
    "installing another backend must not disable this one",
)
def beside_others(subject: Subject) -> None:
    alone = subject.owned(subject.lowerer().plan(exported(Pointwise))["forward"])
    rivals = (Accelerator("rival", ops=("mul",)), Accelerator("other", ops=("sub",)))
    for order in permutations((None, *rivals)):
        place = order.index(None)
        _check_order(subject, alone, order[:place], order[place + 1 :])


def _check_order(
    subject: Subject, alone: set[str], before: Sequence[Any], behind: Sequence[Any]
) -> None:
    plan = subject.lowerer(*behind, first=before).plan(exported(Pointwise))["forward"]
    owned, earlier = subject.owned(plan), {rival.name for rival in before}
    if not before:
        assert owned == alone, "a plugin behind it changed what it has"
    taken = {entry.node for entry in plan.ledger if entry.owner in earlier}
    lost = alone - owned - taken
    # A group that lost one node may be dropped as a whole.
    assert not lost or owned, f"it lost {sorted(lost)}, which nobody took"


@contract(
    "it plans and compiles when an earlier plugin took any of its nodes",
    "the host drops groups that lost a node, and keeps the other groups",
)
def torn_claims(subject: Subject) -> None:
    unfit = subject.unfit()
    for kind in (Pointwise, Layer):
        program = exported(kind)
        for node in sorted(subject.owned(subject.lowerer().plan(program)["forward"])):
            lowerer = subject.lowerer(first=[Accelerator("rival", nodes=(node,))])
            _ = lowerer.plan(program) if unfit else lowerer.lower(program)


@contract(
    "it claims no delegates of the given program, and no constants that only they read",
    "programs may have delegates before etdev lowers them",
)
def foreign_delegates(subject: Subject) -> None:
    for kind in (Pointwise, Scaled):
        program = programs.delegated(kind)
        weights = set(program.graph_signature.inputs_to_parameters)
        plan = subject.lowerer().plan(program)["forward"]
        said = [entry for entry in plan.ledger if entry.foreign]
        wrong = [v for e in said for v in e.verdicts if v.code == "foreign"]
        assert not wrong, "it claims the call of a delegate"
        mine = [p for p in plan.partitions if p.plugin == subject.name]
        held = weights & {constant.name for p in mine for constant in p.constants}
        assert not held, f"it claims {min(held, default='')}, which only a delegate reads"


@contract(
    "it takes over the nodes on which another plugin's compiler fails",
    "with on_failure = fallback, every plugin is asked again while a lowering goes on",
)
def others_failures(subject: Subject) -> None:
    alone = subject.owned(subject.lowerer().plan(exported(Pointwise))["forward"])
    if not alone:
        raise Skipped("it claims nothing of the program")
    subject.compiling()
    rival = unbuildable("rival")
    lowerer = subject.lowerer(first=[rival], on_failure="fallback")
    lowered = lowerer.lower(exported(Pointwise))
    owned = subject.owned(lowered.plan["forward"])
    assert owned == alone, f"it got {sorted(owned)} of {sorted(alone)}"
    modules = get_lowered_submodules(lowered.edge.exported_program().graph_module)
    assert modules, "nothing was compiled"
