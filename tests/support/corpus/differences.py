"""The differences between two records of the corpus, for people to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

# Outcomes by key, as a record has them.
Outcomes = Mapping[str, Mapping[str, Any]]


@frozen
class Difference:
    """A case whose outcome changed.

    Args:
        kind: What changed, in a word or two.
        key: The case.
        before: Its outcome before the change, as far as it differs.
        after: Its outcome now.
    """

    kind: str
    key: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}\n  before  {self.before}\n  after   {self.after}"


def differences(before: Outcomes, after: Outcomes, *, texts: bool = True) -> Iterator[Difference]:
    """Yield the differences in the order of keys.

    Args:
        before: Outcomes before the change.
        after: Outcomes after the change.
        texts: Compare the texts of errors and warnings, too.
    """
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            kind = "only after" if old is None else "only before"
            yield Difference(kind, key, _shown(old), _shown(new))
            continue
        if _digest(old) != _digest(new) or old.get("error") != new.get("error"):
            yield Difference(_kind(old, new), key, _shown(old), _shown(new))
        elif texts and old.get("text") != new.get("text"):
            yield Difference("error text", key, _shown(old), _shown(new))
        if texts and old.get("warnings") != new.get("warnings"):
            yield Difference("warnings", key, _said(old), _said(new))


def summary(before: Outcomes, after: Outcomes, found: list[Difference]) -> str:
    """Return the counts of differences in one line."""
    both = before.keys() & after.keys()
    same = len(both - {difference.key for difference in found})
    counts = [f"{count} {kind}" for kind, count in sorted(Counter(d.kind for d in found).items())]
    return f"{len(before)} cases before, {len(after)} after: " + ", ".join(
        [f"{same} unchanged", *counts]
    )


def _digest(outcome: Mapping[str, Any]) -> Any:
    return outcome.get("files") or outcome.get("plan")


def _kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if "error" in old:
        return "error class" if "error" in new else "no longer refused"
    if "error" in new:
        return "refused now"
    return "plan" if "plan" in new else "bytes"


def _shown(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return "-"
    if "error" in outcome:
        return f"{outcome['error']}: {outcome['text']}"
    if "plan" in outcome:
        return f"plan {outcome['plan'][:12]}"
    files = outcome["files"].items()
    return ", ".join(f"{name} {file[:12]}{file[64:]}" for name, file in files)


def _said(outcome: Mapping[str, Any]) -> str:
    return " | ".join(outcome.get("warnings", [])) or "none"
