"""The ledger of a plan: each node's owner, and the verdict of every plugin on the node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

from attrs import frozen

from etdev.schema.cost import Workload, seconds, total
from etdev.schema.pins import PORTABLE, Pin
from etdev.schema.reasons import CLAIMED, FOREIGN

# What a call of a delegate is named as an op.
DELEGATE = "call_delegate"


@frozen
class Verdict:
    """The outcome of asking one plugin about one node.

    Its code is one of the host's, see `etdev.schema.reasons`, or the plugin's own.
    """

    plugin: str
    code: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.plugin}: {self.text or self.code}"


def together(verdicts: Iterable[Verdict]) -> str:
    """Return the verdicts of all plugins that were asked, as one text."""
    return "; ".join(map(str, verdicts)) or "no plugin was asked"


@frozen
class Entry:
    """One node of the program with all verdicts on it, in claim order.

    Args:
        node: Name of the node.
        op: Its op, such as `aten.add.Tensor`.
        owner: The plugin that has it; None for the call of a delegate that the program came with.
        partition: None if it stays in the method's program.
        verdicts: The outcome of asking each plugin, in claim order.
        module: Path of the source module that computes it; empty if unknown or the model itself.
        pin: The first pin that matches it.
        source_op: The op of the exported program that it comes from, such as `aten.softmax.int`.
        source: The node of the exported program that it comes from; empty if unknown.
        line: The line of the user's code that computes it, such as `net.py:12`; empty if unknown.
        inputs: Names of the values that it reads, each once; constants are left out.
        values: Names of its values if it has several, as in the `inputs` of other entries.
        precision: `int8`, or `8da4w` and `int8w` in torchao's words, in a quantised pattern of its
            partition, else the dtype that it computes in; empty for numbers, and if unknown.
        cost: Its cost at the largest declared sizes; None if nothing bounds one of them.
    """

    node: str
    op: str
    owner: str | None
    partition: str | None
    verdicts: tuple[Verdict, ...]
    module: str = ""
    pin: Pin | None = None
    source_op: str = ""
    line: str = ""
    inputs: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    source: str = ""
    precision: str = ""
    cost: Workload | None = None

    @property
    def seconds(self) -> float:
        """Its predicted time in one thread, which ranks nodes."""
        return seconds(self.cost or Workload(), self.op, delegated=not self.falls_back)

    @property
    def foreign(self) -> bool:
        """True for the call of a delegate that the program came with."""
        return self.op == DELEGATE

    @property
    def holder(self) -> str:
        """Its owner, or `foreign` for a call as above."""
        # In documents of earlier versions a node on portable kernels has no owner.
        return self.owner or (FOREIGN.code if self.foreign else PORTABLE)

    @property
    def falls_back(self) -> bool:
        """True if it stays in the method's program, where no backend runs it."""
        return self.partition is None and not self.foreign

    @property
    def pin_kept(self) -> bool:
        """False if it is pinned to a plugin that has not taken it."""
        return self.pin is None or self.pin.plugin == self.holder

    @property
    def caveat(self) -> str:
        """The difference of its owner from PyTorch, or the reason of a last resort; or empty."""
        own = (verdict for verdict in self.verdicts if verdict.plugin == self.owner)
        return next((verdict.text for verdict in own if verdict.code == CLAIMED.code), "")

    @property
    def reasons(self) -> tuple[Verdict, ...]:
        """The verdicts of the plugins that don't own it."""
        return tuple(verdict for verdict in self.verdicts if verdict.code != CLAIMED.code)


@frozen
class Offered:
    """Nodes that a plugin wanted together or not at all, and what they match in its words."""

    plugin: str
    nodes: tuple[str, ...]
    why: str = ""


@frozen(slots=False)
class Ledger:
    """All entries of one method, in graph order. `ledger[name]` finds one.

    Args:
        entries: An entry for each node.
        groups: The atomic groups of several nodes, and those that say what they matched.
    """

    entries: tuple[Entry, ...]
    groups: tuple[Offered, ...] = ()

    @cached_property
    def _by_node(self) -> dict[str, Entry]:
        return {entry.node: entry for entry in self.entries}

    def __getitem__(self, node: str) -> Entry:
        return self._by_node[node]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def sizes(self) -> dict[str | None, int]:
        """Number of nodes in each partition; without one under None."""
        return Counter(entry.partition for entry in self)

    def owned(self) -> dict[str, int]:
        """Return the number of nodes per owner, most first.

        `portable` stands for portable kernels, `foreign` for delegates that the program came with.
        """
        return dict(Counter(entry.holder for entry in self).most_common())

    def costs(self) -> dict[str, Workload]:
        """Return the cost of the nodes of each owner, those with the most nodes first."""
        costs = dict.fromkeys(self.owned(), Workload())
        for entry in self:
            costs[entry.holder] += entry.cost or Workload()
        return costs

    def shares(self) -> dict[str, str]:
        """Return the part of the cost that each owner has, in words; empty if none is known."""
        costs = self.costs()
        whole = total(costs)
        if whole.vanishes:
            return {}
        return {owner: own.share(whole) for owner, own in costs.items()}

    def precisions(self) -> dict[str, dict[str, int]]:
        """Return the number of nodes per owner and precision, most first."""
        counts = Counter((entry.holder, entry.precision) for entry in self if entry.precision)
        return {
            owner: {kind: n for (holder, kind), n in counts.most_common() if holder == owner}
            for owner in self.owned()
        }
