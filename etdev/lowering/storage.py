"""Storage of weights: those that a .pte stores more than once, over all methods and backends."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from torch.export import ExportedProgram

from etdev.edge.reference import written
from etdev.edge.shared_state import Place, weights_of
from etdev.schema.plan import MethodPlan
from etdev.schema.tensors import StoredAgain

# The owner of constants that no delegate holds; ExecuTorch stores equal ones once.
_PROGRAM = "portable"


def stored_again(
    plans: Sequence[MethodPlan], programs: Mapping[str, ExportedProgram]
) -> Iterator[StoredAgain]:
    """Yield the weights that the .pte stores more than once, over all methods."""
    sizes: dict[Place, int] = {}
    targets: dict[Place, dict[str, list[str]]] = {}
    homes: dict[Place, dict[Hashable, str]] = {}
    for plan in plans:
        program, held = programs[plan.method], _homes(plan)
        state = set(written(program))
        used = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
        for spec, value in weights_of(program):
            target = str(spec.target)
            if spec.arg.name in used and spec.arg.name not in state:
                place = Place.of(value)
                sizes[place] = value.nbytes
                targets.setdefault(place, {}).setdefault(plan.method, []).append(target)
                homes.setdefault(place, {}).update(held.get(target, {_PROGRAM: _PROGRAM}))
    for place, own in homes.items():
        if len(own) > 1:
            names = {method: tuple(known) for method, known in targets[place].items()}
            yield StoredAgain(names, tuple(own.values()), sizes[place])


def _homes(plan: MethodPlan) -> dict[str, dict[Hashable, str]]:
    """Return the plugins that store each constant of a method, by delegate or backend."""
    found: dict[str, dict[Hashable, str]] = {}
    copies: dict[str, int] = {}
    for partition in plan.partitions:
        home: Hashable = partition.backend_id
        if not partition.named_data:
            home = (plan.method, partition.name)
        for constant in partition.constants:
            own = found.setdefault(constant.target, {})
            own.update({home: partition.plugin} if constant.inside else {_PROGRAM: _PROGRAM})
            copies[constant.target] = max(constant.copies, copies.get(constant.target, 1))
    for target, own in found.items():
        # Nodes outside of all partitions read it, too.
        if len(own) < copies[target]:
            own[_PROGRAM] = _PROGRAM
    return found
