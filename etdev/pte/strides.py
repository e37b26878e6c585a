"""Strides: values whose memory order the runtime's kernels don't know become contiguous.

ExecuTorch writes down the order of dimensions that torch computes a value in. Its kernels know two,
contiguous and channels last, and of the others some fail and some write contiguous values all the
same: torch returns the coordinates of `nonzero` column by column, the kernel row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from executorch.exir.tensor import TensorSpec, contiguous_stride_from_shape
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils import _pytree as pytree

from etdev.graph.layout import is_known_order
from etdev.graph.nodes import graph_modules

_DIM_ORDER = "dim_order"


class PlainStrides(PassBase):
    """Makes values contiguous; then runs the pass in whose place it was put.

    Args:
        then: The pass that ExecuTorch would have run in this place.
    """

    def __init__(self, then: PassBase) -> None:
        super().__init__()
        self._then = then

    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Rewrites the specs in place."""
        for module in graph_modules(graph_module):
            for node in module.graph.nodes:
                _make_plain(node)
        return self._then(graph_module)


def _make_plain(node: Node) -> None:
    for spec in _specs(node):
        if not is_known_order(spec.dim_order):
            spec.stride = contiguous_stride_from_shape(spec.shape)
            spec.dim_order = tuple(range(len(spec.shape)))
    # Its kernel compares the argument with what it writes to, whose strides may stand for another
    # order where a dimension has one element.
    order: Any = node.kwargs.get(_DIM_ORDER)
    written = next((list(spec.dim_order) for spec in _specs(node)), None)
    if node.op == "call_function" and None not in (order, written) and list(order) != written:
        node.kwargs = {**node.kwargs, _DIM_ORDER: written}
    # No kernel copies later, and they fail where they are asked to.
    if node.op == "call_function" and node.kwargs.get("non_blocking"):
        node.kwargs = {**node.kwargs, "non_blocking": False}


def _specs(node: Node) -> Iterator[TensorSpec]:
    for spec in pytree.tree_leaves(node.meta.get("spec")):
        if isinstance(spec, TensorSpec):
            yield spec
