"""Patterns of several nodes that a plugin has whole, and no other plugin in part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attrs import frozen

from etdev.planner.reporter import verdict_of
from etdev.schema.ledger import Offered, Verdict
from etdev.schema.reasons import TORN


@frozen
class Patterns:
    """The patterns of one method that are kept whole in a round.

    Args:
        kept: Atomic groups whose nodes no plugin but theirs gets.
        hopeless: Those that their plugin didn't get even so.
    """

    kept: tuple[Offered, ...] = ()
    hopeless: tuple[Offered, ...] = ()

    def after(
        self, missed: Iterable[Offered], holders: Callable[[Offered], set[str | None]]
    ) -> Patterns:
        """Return the patterns of the next round; the same ones if this round tore none.

        With each round one is added or found to be hopeless, so that there is a last round.

        Args:
            missed: Patterns that their plugins didn't get.
            holders: Returns the plugins that have nodes of a pattern; None stands for no plugin.
        """
        unhad = [p for p in self.kept if holders(p) != {p.plugin}]
        known = {*self.kept, *self.hopeless}
        torn = [p for p in missed if p not in known and len(holders(p)) > 1]
        kept = dict.fromkeys(p for p in (*self.kept, *torn) if p not in unhad)
        return Patterns(tuple(kept), (*self.hopeless, *unhad))

    def bars(self, plugin: str, pieces: Mapping[str, str]) -> dict[str, Verdict]:
        """Return why a plugin can't have nodes, and pieces of nodes, of other plugins' patterns."""
        bars = {
            node: verdict_of(plugin, TORN, owner=p.plugin, node=node, why=p.why)
            for p in self.kept
            for node in p.nodes
            if p.plugin != plugin
        }
        return bars | {piece: bars[op] for piece, op in pieces.items() if op in bars}
