"""Nodes that were removed from a program, or made simpler, before plugins were asked."""

from __future__ import annotations

from attrs import frozen

# Why a node was redundant, to be read after its op.
KINDS = {
    "copies": "copies a value that can be read itself",
    "constants": "is decided by constants alone",
    "masks": "masks nothing, or takes more ops than it needs",
    "duplicates": "computes what was computed before",
    "scalars": "has a number in place of a constant",
    "unused": "is not read any more",
}


@frozen
class Simplification:
    """One node that was removed, or made simpler, with its op, module and line before.

    Its `kind` is one of `KINDS`. `into` is the node or constant that has its value now: its own
    name if it was made simpler, empty if its value is unused.
    """

    node: str
    op: str
    kind: str
    into: str = ""
    module: str = ""
    line: str = ""

    def __str__(self) -> str:
        where = f" in module {self.module}" if self.module else ""
        line = f" at {self.line}" if self.line else ""
        return f"{self.node} was {self.op}{where}{line}, which {self.why}"

    @property
    def why(self) -> str:
        """The reason, to be read after its op."""
        return KINDS.get(self.kind, self.kind)

    @property
    def outcome(self) -> str:
        """The result, as a sentence."""
        change = "made simpler" if self.into == self.node else "taken out"
        now = f"; {self.into} has its value" if self.into not in ("", self.node) else ""
        return f"It was {change} before plugins were asked{now}."
