"""The plan: who runs what and where, decided before anything is compiled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import frozen

from etdev.schema.colours import colours_of
from etdev.schema.documents import CONVERTER, PLAN
from etdev.schema.ledger import Ledger
from etdev.schema.partition import Partition
from etdev.schema.plan_sheets import sheets, summary
from etdev.schema.sheet import html, rich
from etdev.schema.simplification import Simplification
from etdev.schema.tensors import Copy

if TYPE_CHECKING:
    from rich.console import Group

    from etdev.schema.diff import Difference


@frozen(repr=False)
class MethodPlan:
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {summary(self)}>"

    def _repr_html_(self) -> str:
        owners = self.ledger.owned()
        return html(
            sheets(self), colours_of((v.plugin for e in self.ledger for v in e.verdicts), owners)
        )

    def __rich__(self) -> Group:
        return rich(sheets(self))


@frozen(repr=False)
class Plan:
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

    def diff(self, other: Plan) -> Difference:
        """What is different in another plan."""
        from etdev.schema.diff import diff

        return diff(self, other)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'; '.join(map(summary, self.methods))}>"

    def _repr_html_(self) -> str:
        owners = colours_of((name for name, _ in self.plugins), (p.plugin for p in self.partitions))
        return html((sheet for method in self.methods for sheet in sheets(method)), owners)

    def __rich__(self) -> Group:
        return rich(sheet for method in self.methods for sheet in sheets(method))

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
