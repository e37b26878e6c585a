"""Storage of weights: those that a .pte stores more than once, over all methods and backends."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from torch.export import ExportedProgram

from etdev.edge.shared_state import by_place
from etdev.schema.plan import MethodPlan
from etdev.schema.tensors import StoredAgain

# The owner of constants that no delegate holds; ExecuTorch stores equal ones once.
_PROGRAM = "portable"


def stored_again(
    plans: Sequence[MethodPlan], programs: Mapping[str, ExportedProgram]
) -> Iterator[StoredAgain]:
    """Yield the weights that the .pte stores more than once, over all methods."""
    known = {plan.method: _homes(plan) for plan in plans}
    for weights in by_place(programs).values():
        homes: dict[Hashable, str] = {}
        targets: dict[str, tuple[str, ...]] = {}
        for weight in (weight for weight in weights if not weight.is_written):
            homes |= known[weight.method].get(weight.target, {_PROGRAM: _PROGRAM})
            targets[weight.method] = (*targets.get(weight.method, ()), weight.target)
        if len(homes) > 1:
            yield StoredAgain(targets, tuple(homes.values()), weights[0].size_bytes)


def _homes(plan: MethodPlan) -> dict[str, dict[Hashable, str]]:
    """Return the plugins that store each constant of a method, by delegate or backend."""
    found: dict[str, dict[Hashable, str]] = {}
    copies: dict[str, int] = {}
    for partition in plan.partitions:
        alone = plan.method, partition.name
        home: Hashable = partition.backend_id if partition.named_data else alone
        for constant in partition.constants:
            own = found.setdefault(constant.target, {})
            own.update({home: partition.plugin} if constant.inside else {_PROGRAM: _PROGRAM})
            copies[constant.target] = max(constant.copies, copies.get(constant.target, 1))
    for target, own in found.items():
        # Nodes outside of all partitions read it, too.
        if len(own) < copies[target]:
            own[_PROGRAM] = _PROGRAM
    return found
