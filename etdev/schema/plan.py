"""The plan: who runs what and where, decided before anything is compiled."""

from __future__ import annotations

import json
from typing import Any

from attrs import frozen

from etdev.schema.difference import Difference, compared
from etdev.schema.display import Displayed
from etdev.schema.documents import CONVERTER, PLAN
from etdev.schema.ledger import Ledger
from etdev.schema.partition import Partition
from etdev.schema.simplification import Simplification
from etdev.schema.tensors import Copy


@frozen(repr=False)
class MethodPlan(Displayed):
    """The plan of one method.

    Args:
        method: Name of the method.
        partitions: In the order in which they run.
        delegates: Names of all delegates, the program's own calls among our partitions, in run
            order. A .pte lists its delegates in the order of their first calls, which is this one;
            the audit and `etdev check` match the two by position.
        copies: Values that ExecuTorch's device planning copies between devices at every run.
        fallback: Names of the nodes that stay in the method's program, in graph order.
        ledger: The reason for every node.
        simplified: What was taken out of the program or changed in it before plugins were asked.
    """

    method: str
    partitions: tuple[Partition, ...]
    delegates: tuple[str, ...]
    copies: tuple[Copy, ...]
    fallback: tuple[str, ...]
    ledger: Ledger
    simplified: tuple[Simplification, ...] = ()

    @property
    def copied_bytes(self) -> int:
        """Bytes of constants that the .pte stores again, beyond the first time."""
        every = (constant for partition in self.partitions for constant in partition.constants)
        constants = {constant.name: constant for constant in every if constant.inside}
        return sum((c.copies - 1) * c.size_bytes for c in constants.values())

    def owner(self, node: str) -> str | None:
        """Return the plugin that owns a node; None for a delegate the program came with."""
        return self.ledger[node].owner

    @property
    def summary(self) -> str:
        """The plan in a few words: `forward: 2 delegates, cpu 3, portable 1`."""
        owners = [f"{owner} {count}" for owner, count in self.ledger.owned().items()]
        count = len(self.partitions)
        return f"{self.method}: " + ", ".join([f"{count} delegate{'s' * (count != 1)}", *owners])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.summary}>"


@frozen(repr=False)
class Plan(Displayed):
    """The plan of a whole program: one per method.

    Args:
        methods: In the order the program lists them.
        plugins: Names and versions of the plugins that were asked, in claim order.
    """

    methods: tuple[MethodPlan, ...]
    plugins: tuple[tuple[str, str], ...] = ()

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of all methods."""
        return tuple(partition for method in self.methods for partition in method.partitions)

    @property
    def summary(self) -> str:
        """The plans of all methods in a few words."""
        return "; ".join(method.summary for method in self.methods)

    def diff(self, other: Plan) -> Difference:
        """Return what is different in another plan."""
        difference: Difference = compared(self, other)
        return difference

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.summary}>"

    def __getitem__(self, method: str) -> MethodPlan:
        for plan in self.methods:
            if plan.method == method:
                return plan
        raise KeyError(method)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data: dicts, lists, text and numbers."""
        return PLAN.stamped(CONVERTER.unstructure(self))

    def to_json(self, indent: int | None = 2) -> str:
        """The plan as JSON text; `Plan.from_json` reads it back."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, text: str, who: str = "plan") -> Plan:
        """Read what `to_json` wrote.

        Args:
            text: The text.
            who: What it is called in messages, such as the path of its file.

        Raises:
            EtdevError: It is not a plan; the text has the path of the faulty key.
        """
        return PLAN.read(text, cls, who)
