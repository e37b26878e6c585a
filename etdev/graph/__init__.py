"""The graph of a method; plugins may import the names listed here.

The modules behind them belong to the host and may change.
"""

from etdev.graph.layout import channels_last_weights, is_channels_last, with_contiguous_weights
from etdev.graph.nodes import CALLS, NO_CALL, is_complex, op_name, pieces_of
from etdev.graph.ops import aten_op, own_pieces, written_by
from etdev.graph.rebuild import interpreted_copy
from etdev.graph.signature import (
    computed_from,
    folded_integers,
    stored_values,
    unwritten_constants,
)

__all__ = [
    "CALLS",
    "NO_CALL",
    "aten_op",
    "channels_last_weights",
    "computed_from",
    "folded_integers",
    "interpreted_copy",
    "is_channels_last",
    "is_complex",
    "op_name",
    "own_pieces",
    "pieces_of",
    "stored_values",
    "unwritten_constants",
    "with_contiguous_weights",
    "written_by",
]
