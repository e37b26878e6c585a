"""The symbolic sizes of a program and torch's facts about them, its shape env.

Every trace writes to the shape env of its program: it adds guards, fixes sizes, and makes symbols
for values that depend on data. So a program that is traced here gets a shape env of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.types import PySymType

from etdev.graph.nodes import graph_modules
from etdev.graph.rebuild import with_own_graphs
from etdev.upstream.fake_tensors import (
    FakeTensor,
    FakeTensorMode,
    in_shape_env,
    is_traceable_wrapper_subclass,
    remade,
    transform_subclass,
)
from etdev.upstream.shape_env import copied, fix_ranges, unbound_symbols
from etdev.upstream.trees import pytree


def fake_mode(nodes: Iterable[Node]) -> FakeTensorMode | None:
    """Return the mode of the first fake tensor among the values of some nodes."""
    values = (value for node in nodes for value in pytree.tree_leaves(node.meta.get("val")))
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)


def with_own_symbols(program: ExportedProgram) -> ExportedProgram:
    """Copy a program with its shape env, so that a trace of the copy leaves the original alone.

    Weights are shared. A program without symbols is returned as it is: a trace has nothing to write
    to its shape env.
    """
    mode = fake_mode(program.graph.nodes)
    if mode is None or mode.shape_env is None or not mode.shape_env.var_to_range:
        return program
    own, converter = copy.copy(mode), mode.fake_tensor_converter
    own.shape_env = copied(mode.shape_env)
    own.enter_stack = []
    own.fake_tensor_converter = type(converter)(
        copy_data=mode.propagate_real_tensors, export=converter.export
    )
    again = with_own_graphs(program)
    for module in graph_modules(again.graph_module):
        _renew(module.graph, own)
    return again


@contextmanager
def settled(mode: FakeTensorMode | None) -> Iterator[None]:
    """Trace without the symbols that earlier passes made and bound to no node.

    torch would look for them in the results of the next trace.
    """
    pending = unbound_symbols(mode.shape_env if mode else None)
    pending.clear()
    try:
        yield
    finally:
        pending.clear()


def keep_ranges(mode: FakeTensorMode | None) -> FakeTensorMode | None:
    """Keep the ranges of sizes: a convolution traced for a batch of 2 takes none above 15."""
    if mode and mode.shape_env:
        fix_ranges(mode.shape_env)
    return mode


@contextmanager
def unbound(*programs: ExportedProgram) -> Iterator[None]:
    """Run passes of ExecuTorch, which trace but don't note the node that binds a new symbol."""
    with ExitStack() as stack:
        for mode in (fake_mode(program.graph.nodes) for program in programs):
            if mode and mode.shape_env:
                stack.enter_context(settled(mode))
                stack.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
        yield


def unbacked(values: Any) -> set[Any]:
    """Return the symbols in some values and sizes that depend on data."""
    return {
        symbol
        for value in pytree.tree_leaves(values)
        if isinstance(value, (torch.Tensor, PySymType))
        for symbol in free_unbacked_symbols(value)
    }


def unify(program: ExportedProgram, wanted: Any) -> None:
    """Give the results of a traced program, in place, the symbols of the values they replace.

    The trace made new symbols for sizes and numbers that depend on data.
    """
    results = [result.meta["val"] for result in program.graph.output_node().args[0]]
    new = unbacked(results) - unbacked(wanted)
    pairs = zip(_expressions(results), _expressions(wanted), strict=True)
    renamed = {ours: theirs for ours, theirs in pairs if ours in new}
    mode = fake_mode(program.graph.nodes)
    if renamed and mode is not None:
        _renew(program.graph, mode, renamed)


def _expressions(values: Any) -> list[Any]:
    """Return the sizes of some tensors, and the values of other results."""
    sizes: list[Any] = []
    for value in pytree.tree_leaves(values):
        sizes.extend(value.shape if isinstance(value, torch.Tensor) else [value])
    return [size.node.expr if isinstance(size, PySymType) else size for size in sizes]


def _renew(graph: Graph, mode: FakeTensorMode, renamed: Mapping[Any, Any] | None = None) -> None:
    """Copy the values of a graph's nodes into a fake mode, some symbols by other names."""
    env: Any = mode.shape_env

    def size(value: Any) -> Any:
        return in_shape_env(value, env, renamed or {}) if isinstance(value, PySymType) else value

    def again(value: Any) -> Any:
        if isinstance(value, FakeTensor) and value.layout == torch.strided:
            return remade(value, mode, _strided(value, size))
        if is_traceable_wrapper_subclass(value):
            # A quantised weight, for one, in a program that Dynamo traced.
            return transform_subclass(value, lambda _, inner: again(inner))  # type: ignore[no-untyped-call]
        return size(value)

    for node in graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(again, node.meta["val"])


def _strided(value: torch.Tensor, size: Callable[[Any], Any]) -> torch.Tensor:
    """Return a meta tensor with the dtype, sizes and strides of another."""
    sizes, strides = ([size(each) for each in many] for many in (value.shape, value.stride()))
    offset, size_bytes = value.storage_offset(), value.untyped_storage().nbytes()
    # A trace computes offsets again, except for those of weights, which are known.
    if not isinstance(offset, int) or not offset or not isinstance(size_bytes, int):
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta")
    count = size_bytes // value.element_size()
    storage = torch.empty(count, dtype=value.dtype, device="meta")
    return storage.as_strided(sizes, strides, offset)
