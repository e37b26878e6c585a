"""Holes of a plan: chains of nodes on slow kernels that take a good part of its time."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from etdev.schema.cost import Workload, seconds
from etdev.schema.ledger import Entry, together
from etdev.schema.plan import MethodPlan
from etdev.schema.wording import counted

# A hole takes this part of the method's predicted time and this long, in seconds, on kernels that
# are this many times slower than a delegate's.
_PART, _LEAST_S, _SLOWER = 0.1, 1e-4, 10


@frozen
class Hole:
    """Nodes that read each other's values on slow kernels, or are alike in one module.

    Args:
        nodes: Their entries, in graph order.
        part: Their part of the method's predicted time.
    """

    nodes: tuple[Entry, ...]
    part: float

    def __str__(self) -> str:
        slowest = max(self.nodes, key=lambda entry: entry.seconds)
        more = len(self.nodes) - 1
        place = slowest.module or slowest.line or slowest.node
        others = f" and {counted(more, 'node')} beside it" if more else ""
        return (
            f"slow: {slowest.op} of {place}{others} on portable kernels, about {self.part:.0%} of "
            f"the time: {together(slowest.reasons)}; change that, or add a plugin that takes it"
        )


def holes(method: MethodPlan) -> list[Hole]:
    """Return the holes of a method, those that take longest first."""
    whole = sum(entry.seconds for entry in method.ledger)
    # One line for the pieces of a layer that are alike.
    alike: dict[tuple[str, str], list[Entry]] = {}
    for chain in _chains(method):
        slowest = max(chain, key=lambda entry: entry.seconds)
        alike.setdefault((slowest.op, slowest.module or slowest.line), []).extend(chain)
    spent = {key: sum(entry.seconds for entry in nodes) for key, nodes in alike.items()}
    found = [
        Hole(tuple(nodes), spent[key] / whole)
        for key, nodes in alike.items()
        if spent[key] > max(_PART * whole, _LEAST_S)
    ]
    return sorted(found, key=lambda hole: -hole.part)


def _chains(method: MethodPlan) -> Iterator[list[Entry]]:
    """Yield the nodes on slow kernels, those together that read one another's values."""
    # Only here: commands that read files start in a third of a second without it.
    import networkx

    slow = [entry for entry in method.ledger if entry.falls_back and _is_slow(entry)]
    makers = {name: entry.node for entry in slow for name in (entry.node, *entry.values)}
    chains = networkx.utils.UnionFind(entry.node for entry in slow)
    for entry in slow:
        chains.union(entry.node, *(makers[name] for name in entry.inputs if name in makers))
    found: dict[str, list[Entry]] = {}
    for entry in slow:
        found.setdefault(chains[entry.node], []).append(entry)
    yield from found.values()


def _is_slow(entry: Entry) -> bool:
    ideal = seconds(entry.cost or Workload(), entry.op, delegated=True)
    return entry.seconds >= _SLOWER * ideal > 0
