"""The host's reason codes and texts: why a plugin got a node, or why it did not.

Plugins refuse nodes with codes of their own. These are the host's and reserved: a plugin that
refuses with one of them gets a ClaimError. plugins/README.md explains each in a table.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Reason:
    """A code by which verdicts are grouped, and the text of a verdict as a format string."""

    code: str
    text: str = ""

    def say(self, **fields: object) -> str:
        """Return the text with its fields filled in."""
        return self.text.format(**fields)


CLAIMED = Reason("claimed")
SILENT = Reason("no-reason", "it gives no reason")
NOT_ASKED = Reason("not-asked", "its limits name other methods")
LOST = Reason("lost", "owned by {owner}")
LOST_GROUP = Reason("lost", "lost {node} to {owner}")
PINNED = Reason("pin", "pinned by {pin}")
FOREIGN = Reason("foreign", "{node} belongs to a delegate")
GROUP = Reason("group", "{node} can't be had without {source}")
CONVEXITY = Reason("convexity", "{node} lies between its group's nodes")
TORN = Reason("torn", "{owner} has {node} only in a pattern that this would tear: {why}")
PIECES = Reason("pieces", "it took none of its pieces")
MIN_NODES = Reason("min_nodes", "its partition has size {size}, below min_nodes = {least}")
MAX_PARTITIONS = Reason(
    "max_partitions",
    "exceeds max_partitions = {most}: the plugin's other partitions are larger, or equally large "
    "and earlier",
)
COMPILE_FAILED = Reason("compile-failed", "its compiler failed: {error}")

HOST_REASONS = tuple(known for known in list(vars().values()) if isinstance(known, Reason))
RESERVED = tuple(dict.fromkeys(reason.code for reason in HOST_REASONS))
