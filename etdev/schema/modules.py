"""Paths of source modules, and the time that each module takes of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from attrs import frozen

from etdev.schema.plan import MethodPlan

# Modules with a smaller share of the time get no row.
_LEAST = 0.02


@frozen
class ModuleTime:
    """The time per run that a module takes with its submodules, of what is in it as a whole.

    Counted are partitions (`delegates`) and portable nodes; the share is that of all known ones.
    """

    path: str
    ms: float
    share: float
    delegates: int
    portable: int


def common(modules: Sequence[str]) -> str:
    """Return the innermost module that contains all of these modules."""
    steps = zip(*(module.split(".") for module in modules), strict=False)
    return ".".join(step[0] for step in takewhile(lambda step: len(set(step)) == 1, steps))


def around(module: str) -> Iterator[str]:
    """Yield the paths of a module and of the modules that contain it."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def module_times(method: MethodPlan, times: Mapping[str, float]) -> tuple[ModuleTime, ...]:
    """Return the time of each module with a significant share, most time first.

    If a module and its only submodule take the same time, the submodule alone is listed.

    Args:
        method: The plan.
        times: Milliseconds of partitions and portable nodes, by name.
    """
    modules = {entry.node: entry.module for entry in method.ledger}
    delegates = {
        partition.name: common([modules[n] for n in partition.nodes if n in modules])
        for partition in method.partitions
    }
    total = sum(times.values()) or 1.0
    ms: dict[str, float] = {}
    counts: Counter[tuple[str, bool]] = Counter()
    for name, spent in times.items():
        for path in around(delegates.get(name, modules.get(name, ""))):
            ms[path] = ms.get(path, 0.0) + spent
            counts[path, name in delegates] += 1
    inner = {(path.rpartition(".")[0], round(ms[path], 9)) for path in ms}
    significant = [
        ModuleTime(path, spent, spent / total, counts[path, True], counts[path, False])
        for path, spent in ms.items()
        if spent / total >= _LEAST and (path, round(spent, 9)) not in inner
    ]
    return tuple(sorted(significant, key=lambda module: (-module.ms, module.path)))
