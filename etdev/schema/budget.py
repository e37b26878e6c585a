"""The budget of nodes that may fall back to portable kernels."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from attrs import field, frozen

from etdev.errors import BudgetError
from etdev.schema import globs
from etdev.schema.converters import count
from etdev.schema.ledger import listed
from etdev.schema.structuring import structured, table

if TYPE_CHECKING:
    from etdev.schema.plan import MethodPlan


def _globs(value: Sequence[str]) -> tuple[str, ...]:
    # A bare tuple() would take each letter of a text for a glob.
    is_list = isinstance(value, (list, tuple))
    for fault in map(globs.fault, value) if is_list else [f"is {value!r}"]:
        if fault:
            raise BudgetError("budget", f"fallback_ops {fault}", 'write ["aten.add.*"]')
    return tuple(value)


@frozen
class Budget:
    """The number of nodes that may fall back to portable kernels, pinned nodes included.

    Args:
        max_fallback_nodes: Most nodes in the whole program, apart from those of `fallback_ops`.
        fallback_ops: Globs of op names whose nodes may fall back in any number.

    Raises:
        BudgetError: A value makes no sense.
    """

    max_fallback_nodes: int = field(default=0, validator=count(0, BudgetError, "budget"))
    fallback_ops: tuple[str, ...] = field(default=(), converter=_globs)

    def check(self, plans: Sequence[MethodPlan]) -> None:
        """Refuse the plans of a program's methods if too many nodes fall back.

        Raises:
            BudgetError: The budget is exceeded; the message lists the nodes with their op, their
                module and the reason of each plugin.
        """
        over = [
            (plan.method, entry)
            for plan in plans
            for entry in plan.ledger
            if entry.falls_back and not any(fnmatchcase(entry.op, op) for op in self.fallback_ops)
        ]
        if len(over) > self.max_fallback_nodes:
            free = f" beside {', '.join(self.fallback_ops)}" if self.fallback_ops else ""
            raise BudgetError(
                "budget",
                f"{self.max_fallback_nodes} nodes may be left to portable kernels{free}, "
                f"not {len(over)}: {listed(over)}",
                "raise max_fallback_nodes, allow their ops with fallback_ops, or add a plugin",
            )


table(Budget, "budget", "write {'max_fallback_nodes': 10}", empty=False)


def budget(value: object) -> Budget:
    """Return a budget from a mapping of its fields, or unchanged."""
    return structured(value, Budget, "budget", BudgetError)
