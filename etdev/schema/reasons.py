"""The host's reason codes and texts: why a plugin got a node, or why it did not.

Plugins refuse nodes with codes of their own. These are the host's and reserved: a plugin that
refuses with one of them gets a ClaimError. plugins/README.md has them in a table.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Reason:
    """One of the host's reasons.

    Args:
        code: The code by which verdicts are grouped.
        meaning: Its explanation in plugins/README.md.
        text: Text of a verdict; `say` fills in its fields.
    """

    code: str
    meaning: str
    text: str = ""

    def say(self, **fields: object) -> str:
        """Return the text with its fields filled in."""
        return self.text.format(**fields)


CLAIMED = Reason("claimed", "the plugin owns the node")
SILENT = Reason("silent", "the plugin neither claimed the node nor refused it")
LOST = Reason("lost", "an earlier plugin owns the node", "owned by {owner}")
LOST_GROUP = Reason("lost", "an earlier plugin owns a node of its group", "lost {node} to {owner}")
PINNED = Reason("pin", "the node is pinned to another plugin, or to `portable`", "pinned by {pin}")
FOREIGN = Reason(
    "foreign",
    "the node belongs to a delegate that the program came with",
    "{node} belongs to a delegate",
)
GROUP = Reason(
    "group",
    "the plugin claimed a getitem without its op",
    "{node} can't be had without {source}",
)
CONVEXITY = Reason(
    "convexity",
    "a path leaves the atomic group and comes back, so that no partition could hold it",
    "{node} lies between its group's nodes",
)
PIECES = Reason(
    "pieces",
    "the plugin was shown the op decomposed, since another wants it whole, and took no piece",
    "it took none of its pieces",
)
MIN_NODES = Reason(
    "min_nodes",
    "its partition has fewer nodes than the plugin's `min_nodes`",
    "its partition has size {size}, below min_nodes = {least}",
)
MAX_PARTITIONS = Reason(
    "max_partitions",
    "the plugin has more partitions than its `max_partitions`, and this one is not of the largest",
    "exceeds max_partitions = {most}: the plugin's other partitions are larger, or equally large "
    "and earlier",
)
COMPILE_FAILED = Reason(
    "compile-failed",
    "the plugin's backend failed on the partition that the node was in, and `on_failure` is "
    '"fallback"',
    "its compiler failed: {error}",
)

HOST_REASONS = (
    CLAIMED, SILENT, LOST, LOST_GROUP, PINNED, FOREIGN, GROUP, CONVEXITY, PIECES, MIN_NODES,
    MAX_PARTITIONS, COMPILE_FAILED,
)  # fmt: skip
RESERVED = tuple(dict.fromkeys(reason.code for reason in HOST_REASONS))
