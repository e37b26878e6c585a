"""The budget of nodes that may fall back to portable kernels."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import deep_iterable, ge, instance_of

from etdev.errors import BudgetError
from etdev.schema.converters import frozen_tuple
from etdev.schema.structuring import structured


@frozen
class Budget:
    """The number of nodes that may fall back to portable kernels, pinned nodes included.

    Args:
        max_fallback_nodes: Most nodes in the whole program, apart from those of `fallback_ops`.
        fallback_ops: Globs of op names whose nodes may fall back in any number.
    """

    max_fallback_nodes: int = field(default=0, validator=[instance_of(int), ge(0)])
    fallback_ops: tuple[str, ...] = field(
        default=(), converter=frozen_tuple, validator=deep_iterable(instance_of(str))
    )


def budget(value: object) -> Budget:
    """Return a budget from a mapping of its fields, or unchanged."""
    return structured(value, Budget, "budget", BudgetError)
