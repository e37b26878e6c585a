"""Storage of weights: those stored more than once, and plugins that make a .pte larger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence

import torch
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram

from etdev.edge.shared_state import Weight, by_place, weights_of
from etdev.errors import LoweringError
from etdev.pte.deduplication import PAGE
from etdev.schema.pins import PORTABLE
from etdev.schema.plan import MethodPlan
from etdev.schema.target import Target
from etdev.schema.tensors import Growth, StoredAgain
from etdev.schema.wording import size
from etdev.upstream.emission import content_of

# A plugin is said to make a .pte larger from this part of all weights on, and from these bytes.
_PART, _LEAST = 10, 64 * 1024


def refuse_too_large(programs: Mapping[str, ExportedProgram], target: Target | None) -> None:
    """Raise a LoweringError if the weights alone take more than a target's memory."""
    limit = target.memory_bytes if target else None
    needed = sum(each[0].size_bytes for each in by_place(programs).values()) if limit else 0
    if limit and needed > limit:
        what = f"has {size(limit)} of memory, and the weights alone take {size(needed)}"
        raise LoweringError("target", what, "quantise the model, or name a larger target")


def stored_again(
    plans: Sequence[MethodPlan],
    programs: Mapping[str, ExportedProgram],
    known: Container[bytes] = (),
) -> Iterator[StoredAgain]:
    """Yield the weights that the .pte stores more than once, over all methods.

    `known` are the `contents` of compiled partitions, if they are compiled.
    """
    for weights, homes in _stores(plans, programs, known):
        if len(homes) > 1:
            targets: dict[str, tuple[str, ...]] = {}
            for weight in weights:
                targets[weight.method] = (*targets.get(weight.method, ()), weight.target)
            yield StoredAgain(targets, tuple(homes.values()), weights[0].size_bytes)


def contents(modules: Mapping[tuple[str, str], LoweredBackendModule]) -> frozenset[bytes]:
    """Return the named data of compiled partitions.

    A constant with the same bytes is in the .pte once with it, see etdev/pte/deduplication.py.
    """
    stores = filter(None, (module.named_data_store_output for module in modules.values()))
    return frozenset(content_of(data) for store in stores for data in store.buffers)


def growths(
    plans: Sequence[MethodPlan],
    programs: Mapping[str, ExportedProgram],
    modules: Mapping[tuple[str, str], LoweredBackendModule],
    known: Container[bytes],
) -> Iterator[Growth]:
    """Yield the plugins whose delegates are much larger than the weights that only they store.

    `modules` are the compiled partitions, by method and name, and `known` their `contents`.
    """
    alone, total = Counter[str](), 0
    for weights, homes in _stores(plans, programs, known):
        total += weights[0].size_bytes
        if len(owners := set(homes.values())) == 1:
            alone[owners.pop()] += weights[0].size_bytes
    parts: dict[str, dict[Hashable, int]] = {}
    for partition in (partition for plan in plans for partition in plan.partitions):
        key, own = (partition.method, partition.name), parts.setdefault(partition.plugin, {})
        own[key] = len(modules[key].processed_bytes)
        if data := modules[key].named_data_store_output:
            # Delegates that name the same data have it in common.
            entries = data.pte_data.items()
            own |= {name: len(data.buffers[entry.buffer_index]) for name, entry in entries}
    for plugin, sizes in parts.items():
        growth = Growth(plugin, sum(sizes.values()), alone[plugin])
        if growth.more_bytes > max(_LEAST, total // _PART):
            yield growth


def _stores(
    plans: Sequence[MethodPlan],
    programs: Mapping[str, ExportedProgram],
    named: Container[bytes],
) -> Iterator[tuple[list[Weight], dict[Hashable, str]]]:
    """Yield the names of each weight that no method writes, and the plugins that store it."""
    known = {plan.method: _homes(plan) for plan in plans}
    for every in by_place(programs).values():
        homes: dict[Hashable, str] = {}
        weights = [weight for weight in every if not weight.is_written]
        for weight in weights:
            homes |= known[weight.method].get(weight.target, {PORTABLE: PORTABLE})
        large = bool(weights) and weights[0].size_bytes >= PAGE
        if named and large and PORTABLE in homes and len(homes) > 1:
            method, target = weights[0].method, weights[0].target
            values = {str(spec.target): value for spec, value in weights_of(programs[method])}
            content = values[target].detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            if content.numpy().tobytes() in named:
                del homes[PORTABLE]
        if weights:
            yield weights, homes


def _homes(plan: MethodPlan) -> dict[str, dict[Hashable, str]]:
    """Return the plugins that store each constant of a method, by delegate or backend."""
    found: dict[str, dict[Hashable, str]] = {}
    copies: dict[str, int] = {}
    for partition in plan.partitions:
        alone = plan.method, partition.name
        home: Hashable = partition.backend_id if partition.named_data else alone
        for constant in partition.constants:
            own = found.setdefault(constant.target, {})
            own.update({home: partition.plugin} if constant.inside else {PORTABLE: PORTABLE})
            copies[constant.target] = max(constant.copies, copies.get(constant.target, 1))
    for target, own in found.items():
        # Nodes outside of all partitions read it, too.
        if len(own) < copies[target]:
            own[PORTABLE] = PORTABLE
    return found
