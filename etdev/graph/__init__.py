"""The graph of a method: read, searched, cut and put together.

What plugins may import beyond `etdev` itself is named here; the modules behind it are the host's.
"""

from etdev.graph.inductor import misread
from etdev.graph.interpreted import interpreted_copy
from etdev.graph.layout import is_channels_last, with_contiguous_weights
from etdev.graph.nodes import is_complex, op_name, pieces_of
from etdev.graph.ops import aten_op, own_pieces
from etdev.graph.signature import computed_from, unwritten_constants
from etdev.graph.source import CALLS, NO_CALL

__all__ = [
    "CALLS",
    "NO_CALL",
    "aten_op",
    "computed_from",
    "interpreted_copy",
    "is_channels_last",
    "is_complex",
    "misread",
    "op_name",
    "own_pieces",
    "pieces_of",
    "unwritten_constants",
    "with_contiguous_weights",
]
