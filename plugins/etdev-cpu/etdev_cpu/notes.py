"""Notes of XNNPACK's matcher for its compiler, in `node.meta`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from torch.fx import Node

# Its name in executorch.backends.xnnpack.utils.quant_utils, which would import torch.
IMPLICIT = "IS_IMPLICIT_Q_DQ_TAG"
# Nodes between a layer and the farthest quantiser of its pattern, behind a pad or an activation.
_REACH = 3


@frozen
class Notes:
    """Additions to `node.meta` for XNNPACK's compiler.

    Args:
        notes: By node name.
        patterns: By node name, the ops of each match that it is in; lone quantisers are in none.
    """

    notes: Mapping[str, Mapping[str, object]]
    patterns: Mapping[str, Sequence[frozenset[str]]]

    def of(self, names: Collection[str]) -> dict[str, Mapping[str, object]]:
        """Return the notes that hold in a partition of these nodes.

        XNNPACK leaves out a quantiser that is noted as implicit, for its layer does its work. So
        the note holds only beside the whole of its layer's match.
        """
        inside, notes = frozenset(names), {}
        for name in names:
            note = self.notes.get(name, {})
            if not any(pattern <= inside for pattern in self.patterns.get(name, ())):
                note = {key: value for key, value in note.items() if key != IMPLICIT}
            if note:
                notes[name] = note
        return notes


def untagged(check: Callable[[Node], bool]) -> Callable[[Node], bool]:
    """XNNPACK's check of a layer, without the tags that it leaves on the quantisers around it.

    It tags them whether or not the layer is taken, and the tags would travel into other plugins'
    graphs and into delegates that don't have the layer.
    """

    def tidy(node: Node) -> bool:
        try:
            return check(node)
        finally:
            for near in _around(node):
                near.meta.pop(IMPLICIT, None)

    return tidy


def _around(node: Node) -> set[Node]:
    """Nodes within the reach of a layer's pattern: dequantised inputs, activation, quantiser."""
    before, after, around = {node}, {node}, {node}
    for _ in range(_REACH):
        before = {source for other in before for source in other.all_input_nodes}
        after = {user for other in after for user in other.users}
        around |= before | after
    return around
