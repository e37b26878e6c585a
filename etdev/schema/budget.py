"""The budget: how many nodes may fall back to portable kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import Attribute, field, frozen

from etdev.errors import BudgetError
from etdev.schema import globs
from etdev.schema.ledger import listed
from etdev.schema.structuring import structured, table

if TYPE_CHECKING:
    from etdev.schema.plan import MethodPlan


def _check_count(_: Budget, attribute: Attribute[Any], value: object) -> None:
    if type(value) is not int or value < 0:
        what = f"{attribute.name} is {value!r}"
        raise BudgetError("budget", what, "it must be a whole number of at least 0")


def _check_ops(_: Budget, attribute: Attribute[Any], value: tuple[object, ...]) -> None:
    for op in value:
        if fault := globs.fault(op):
            raise BudgetError("budget", f"{attribute.name} {fault}", 'write ["aten.add.*"]')


def _globs(value: object) -> tuple[object, ...]:
    if not isinstance(value, (list, tuple)):
        # Each letter of a text would be taken for a glob.
        raise BudgetError("budget", f"fallback_ops is {value!r}", 'write ["aten.add.*"]')
    return tuple(value)


@frozen
class Budget:
    """How much may fall back to portable kernels in a whole program, pinned nodes included.

    Args:
        max_fallback_nodes: Most nodes of ops that are not in `fallback_ops`.
        fallback_ops: Globs of op names whose nodes may fall back in any number.

    Raises:
        BudgetError: A value makes no sense.
    """

    max_fallback_nodes: int = field(default=0, validator=_check_count)
    fallback_ops: tuple[str, ...] = field(default=(), converter=_globs, validator=_check_ops)

    @classmethod
    def of(cls, value: object) -> Budget:
        """A budget from a mapping of its fields, or as it is."""
        budget: Budget = structured(value, cls, "budget", BudgetError)
        return budget

    def check(self, plans: Sequence[MethodPlan]) -> None:
        """Refuse plans of a program's methods that exceed the budget.

        Raises:
            BudgetError: More falls back than it allows; the text has the nodes with their op, their
                module and why each plugin refused them.
        """
        over = [
            (plan.method, entry)
            for plan in plans
            for entry in plan.ledger
            if entry.falls_back and not any(globs.matches(op, entry.op) for op in self.fallback_ops)
        ]
        if len(over) > self.max_fallback_nodes:
            beside = f" beside {', '.join(self.fallback_ops)}" if self.fallback_ops else ""
            raise BudgetError(
                "budget",
                f"{self.max_fallback_nodes} nodes may be left to portable kernels{beside}, "
                f"not {len(over)}: {listed(over)}",
                "raise max_fallback_nodes, allow their ops with fallback_ops, or add a plugin",
            )


table(Budget, "budget", "write {'max_fallback_nodes': 10}", empty=False)
