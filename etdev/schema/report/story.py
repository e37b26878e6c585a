"""Stories: what happened to one node of a plan, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from attrs import frozen

from etdev.schema.ledger import Entry, Offered, Verdict
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan
from etdev.schema.reasons import CLAIMED, RESERVED, SILENT
from etdev.schema.simplification import Simplification
from etdev.schema.tensors import Copy

# More names than these are counted.
_NAMED = 6


@frozen(slots=False)
class Storyteller:
    """Tells the stories of a method's nodes.

    Args:
        method: The method's plan.
    """

    method: MethodPlan

    def story(self, entry: Entry) -> Iterator[str]:
        """What a node is, who has it, what each plugin said, where values are copied."""
        yield _identity(self.method.method, entry)
        partition = self._partitions.get(entry.partition or "")
        yield self._home(entry, partition)
        if entry.pin:
            kept = "" if entry.pin_kept else f", but {entry.pin.plugin} does not take it"
            yield f"It is pinned by {entry.pin}{kept}."
        for verdict in entry.verdicts:
            group = self._groups.get((verdict.plugin, entry.node))
            yield _said(verdict, group, entry)
        yield from self._copies(entry, partition)
        yield from self._simplified(entry)

    @cached_property
    def _partitions(self) -> dict[str, Partition]:
        return {partition.name: partition for partition in self.method.partitions}

    @cached_property
    def _groups(self) -> dict[tuple[str, str], Offered]:
        return {(g.plugin, node): g for g in self.method.ledger.groups for node in g.nodes}

    @cached_property
    def _copied(self) -> dict[str, list[Copy]]:
        copied: dict[str, list[Copy]] = {}
        for copy in self.method.copies:
            copied.setdefault(copy.tensor.name, []).append(copy)
        return copied

    @cached_property
    def _replaced(self) -> dict[str, list[Simplification]]:
        replaced: dict[str, list[Simplification]] = {}
        for each in self.method.simplified:
            replaced.setdefault(each.into, []).append(each)
        return replaced

    def _simplified(self, entry: Entry) -> Iterator[str]:
        for each in self._replaced.get(entry.node, ()):
            if each.node == entry.node:
                yield f"It was made simpler before plugins were asked: as {each.op} it {each.why}."
            else:
                yield f"It is read in place of {each.node}, which {each.why}."

    def _home(self, entry: Entry, partition: Partition | None) -> str:
        if entry.foreign:
            return "It is the call of a delegate that the program came with."
        if partition is None:
            return f"{entry.holder} owns it: it stays in the method's program, on the CPU."
        others = len(partition.nodes) - 1
        apart = f", apart from an earlier one because of {partition.split_by}"
        return (
            f"{partition.plugin} owns it: {partition.name} on {partition.device} "
            f"({partition.backend_id}, device {partition.device_source}), with {others} other "
            f"node{'s' * (others != 1)}{apart if partition.split_by else ''}."
        )

    def _copies(self, entry: Entry, partition: Partition | None) -> Iterator[str]:
        for copy in self._copied.get(entry.node, ()):
            yield f"Its value is copied {_route(copy)}."
        for value in partition.inputs if partition else ():
            for copy in self._copied.get(value.name, ()):
                if partition and copy.target == partition.device:
                    yield f"Its partition reads {value.name}, copied {_route(copy)}."
        if self.method.copies and partition is None and not self._copied.get(entry.node):
            yield "Its value is not copied between devices."


def _identity(method: str, entry: Entry) -> str:
    was = f" (once {entry.source_op})" if entry.source_op not in ("", entry.op) else ""
    where = f" in module {entry.module}" if entry.module else ""
    line = f" at {entry.line}" if entry.line else ""
    return f"{method}/{entry.node} is {entry.op}{was}{where}{line}."


def _said(verdict: Verdict, group: Offered | None, entry: Entry) -> str:
    """What a plugin said of a node, and what came of it."""
    who, why = verdict.plugin, verdict.text or verdict.code
    offered = f"{who} wanted it{_together(group, entry)}" if group else ""
    if verdict.code == CLAIMED.code and verdict.text:
        return f"{who} took it as a last resort: {verdict.text}."
    if verdict.code == CLAIMED.code:
        return f"{offered or f'{who} wanted it'} and got it."
    if verdict.code == SILENT.code:
        return f"{who} neither wanted nor refused it."
    if offered:
        return f"{offered} and did not get it: {why}."
    if verdict.code in RESERVED:
        return f"{who} did not get it: {why}."
    code = f" ({verdict.code})" if verdict.text else ""
    return f"{who} refused it: {why}{code}."


def _together(group: Offered, entry: Entry) -> str:
    why = f" ({group.why})" if group.why else ""
    others = [node for node in group.nodes if node != entry.node]
    if not others:
        return why
    named = ", ".join(others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f" together with {named}{more}{why}"


def _route(copy: Copy) -> str:
    size = copy.tensor.size_bytes
    bound = "up to " if copy.tensor.dynamic else ""
    count = "" if size is None else f", {bound}{size} bytes at every run"
    return f"from {copy.source} to {copy.target}{count}"
