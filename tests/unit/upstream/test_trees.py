"""Trees of inputs and outputs, as torch and a .pte have them."""

from __future__ import annotations

from etdev.upstream.trees import flat


def test_flat_follows_the_order_of_a_pte():
    nested = {"a": (1, [2, None]), "b": 3}
    assert flat(nested) == [1, 2, 3]
