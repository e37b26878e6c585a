"""Paths of source modules, and the time that each module takes of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from etdev.schema.plan import MethodPlan

# Modules with a smaller share of the time get no row.
_LEAST = 0.02


@frozen
class ModuleTime:
    """The time that a module takes of a run, with its submodules.

    Args:
        path: Its path.
        ms: Time per run of the partitions and portable nodes that are in it as a whole.
        share: Part of the time of all known partitions and nodes.
        delegates: Number of these partitions.
        portable: Number of these nodes.
    """

    path: str
    ms: float
    share: float
    delegates: int
    portable: int


def common(modules: Sequence[str]) -> str:
    """Return the innermost module that contains all of these modules."""
    if not modules:
        return ""
    paths = [module.split(".") if module else [] for module in modules]
    first, last = min(paths), max(paths)
    pairs = enumerate(zip(first, last, strict=False))
    end = next((i for i, (one, other) in pairs if one != other), min(len(first), len(last)))
    return ".".join(first[:end])


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
    homes = dict(_homes(method))
    total = sum(times.values()) or 1.0
    ms: dict[str, float] = {}
    counts: Counter[tuple[str, bool]] = Counter()
    for name, spent in times.items():
        home, is_partition = homes.get(name, ("", False))
        for path in around(home):
            ms[path] = ms.get(path, 0.0) + spent
            counts[path, is_partition] += 1
    inner = {(path.rpartition(".")[0], round(ms[path], 9)) for path in ms}
    significant = [
        ModuleTime(path, spent, spent / total, counts[path, True], counts[path, False])
        for path, spent in ms.items()
        if spent / total >= _LEAST and (path, round(spent, 9)) not in inner
    ]
    return tuple(sorted(significant, key=lambda module: (-module.ms, module.path)))


def _homes(method: MethodPlan) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Yield each partition and portable node with its module, and True for a partition."""
    modules = {entry.node: entry.module for entry in method.ledger}
    for partition in method.partitions:
        yield partition.name, (common([modules[n] for n in partition.nodes if n in modules]), True)
    for entry in method.ledger:
        if entry.falls_back:
            yield entry.node, (entry.module, False)
