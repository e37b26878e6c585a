"""Sentences about a node of a plan: its owner, each plugin's answer, and its copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from etdev.schema.ledger import Entry, Offered, Verdict
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan
from etdev.schema.reasons import CLAIMED, RESERVED, SILENT
from etdev.schema.tensors import Copy

# A sentence names this many nodes, and counts the rest.
_NAMED = 6


def stories(method: MethodPlan, entries: Iterable[Entry]) -> Iterator[Iterator[str]]:
    """Yield the sentences about each of a method's nodes."""
    partitions = {partition.name: partition for partition in method.partitions}
    groups = {(each.plugin, node): each for each in method.ledger.groups for node in each.nodes}
    copies: dict[str, list[Copy]] = {}
    for copy in method.copies:
        copies.setdefault(copy.tensor.name, []).append(copy)

    def story(entry: Entry) -> Iterator[str]:
        partition = partitions.get(entry.partition or "")
        yield _identity(method.method, entry)
        yield _place(entry, partition)
        if entry.pin:
            kept = "" if entry.pin_kept else f", but {entry.pin.plugin} does not take it"
            yield f"It is pinned by {entry.pin}{kept}."
        for verdict in entry.verdicts:
            yield _answer(verdict, groups.get((verdict.plugin, entry.node)), entry)
        for copy in copies.get(entry.node, ()):
            yield f"Its value is copied {_route(copy)}."
        for value in partition.inputs if partition else ():
            for copy in copies.get(value.name, ()):
                if partition and copy.target == partition.device:
                    yield f"Its partition reads {value.name}, copied {_route(copy)}."
        if copies and partition is None and entry.node not in copies:
            yield "Its value is not copied between devices."

    return map(story, entries)


def _identity(method: str, entry: Entry) -> str:
    was = f" (once {entry.source_op})" if entry.source_op not in ("", entry.op) else ""
    where = f" in module {entry.module}" if entry.module else ""
    line = f" at {entry.line}" if entry.line else ""
    return f"{method}/{entry.node} is {entry.op}{was}{where}{line}."


def _place(entry: Entry, partition: Partition | None) -> str:
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


def _answer(verdict: Verdict, group: Offered | None, entry: Entry) -> str:
    who, why = verdict.plugin, verdict.text or verdict.code
    wanted = f"{who} wanted it{_together(group, entry) if group else ''}"
    if verdict.code == CLAIMED.code:
        last_resort = f"{who} took it as a last resort: {verdict.text}."
        return last_resort if verdict.text else f"{wanted} and got it."
    if verdict.code == SILENT.code:
        return f"{who} neither wanted nor refused it."
    if group:
        return f"{wanted} and did not get it: {why}."
    if verdict.code in RESERVED:
        return f"{who} did not get it: {why}."
    return f"{who} refused it: {why}{f' ({verdict.code})' if verdict.text else ''}."


def _together(group: Offered, entry: Entry) -> str:
    why = f" ({group.why})" if group.why else ""
    others = [node for node in group.nodes if node != entry.node]
    if not others:
        return why
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f" together with {', '.join(others[:_NAMED])}{more}{why}"


def _route(copy: Copy) -> str:
    size = copy.tensor.size_bytes
    bound = "up to " if copy.tensor.dynamic else ""
    count = "" if size is None else f", {bound}{size} bytes at every run"
    return f"from {copy.source} to {copy.target}{count}"
