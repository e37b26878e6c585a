"""A dequantiser of its own for each reader that needs its input in one memory order.

Where XNNPACK's pass for channels last puts a copy between a dequantiser and one reader, all readers
get the copy, and those that were taken to be in the former order compute with mixed-up values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from executorch.backends.xnnpack._passes.channels_last_tagged_reshape_pass import (
    ChannelsLastTaggedReshapePass,
)
from torch.export import ExportedProgram
from torch.fx import Node

from etdev_cpu.layers import shape_of, short

P = TypeVar("P", bound=ExportedProgram)
_CHANNELS_LAST, _PLAIN = (
    {op.__name__.split(".")[1] for op in ops}
    for ops in (
        ChannelsLastTaggedReshapePass.memory_sensitive_ops_nhwc,
        ChannelsLastTaggedReshapePass.memory_sensitive_ops_nchw,
    )
)


def is_shared(node: Node) -> bool:
    """Return True if a node gives images from integers to several readers."""
    several = len(node.users) > 1 and len(shape_of(node)) == 4
    return several and short(node) == "dequantize_per_tensor"


def needs_an_order(reader: Node) -> bool:
    """Return True if XNNPACK's pass may copy the input of a node to another memory order."""
    return reader.op == "output" or short(reader) in {*_CHANNELS_LAST, *_PLAIN, "view_copy"}


def give_own_dequantisers(program: P, alone: Callable[[Node], bool] = needs_an_order) -> P:
    """Give readers that are to be alone a dequantiser each, where a layer is channels last.

    Return the program, whose graph is changed.
    """
    graph = program.graph
    if _CHANNELS_LAST.isdisjoint(map(short, graph.nodes)):
        return program
    for node in filter(is_shared, list(graph.nodes)):
        # The output keeps the node whose name the signature has.
        readers = sorted(node.users, key=lambda reader: reader.op != "output")
        groups = [[reader] for reader in readers if alone(reader)]
        groups.append([reader for reader in readers if not alone(reader)])
        for group in filter(None, groups[1:]):
            with graph.inserting_after(node):
                own = graph.node_copy(node)
            for reader in group:
                reader.replace_input_with(node, own)
    program.graph_module.recompile()
    return program
