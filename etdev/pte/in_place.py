"""Rows written into buffers, such as those of a cache: in place, instead of into a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from etdev.graph.nodes import op_name
from etdev.graph.signature import constant_values
from etdev.upstream.operators import edge_ops
from etdev.upstream.trees import pytree

_WRITE, _READ = "aten.index_put.default", "aten.gather.default"
_VIEW = "aten.view_copy.default"
# Ops that may return a view; ExecuTorch makes views of some.
_VIEWS = ("_copy.", "clone", "getitem")


def write_in_place(program: ExportedProgram) -> None:
    """Let a method write rows into its buffers where nothing needs the old value later.

    ExecuTorch copies the buffer, writes the rows into the copy, and copies it back. Its own pass
    for this, `run_reinplace_pass`, gives views of the written buffer memory of their own, and takes
    writes that the kernel refuses.

    The program is changed: `index_put` becomes `index_put_`, and views of its result become views
    of the buffer, which has the new value by then.
    """
    nodes, signature = list(program.graph.nodes), program.graph_signature
    places = {node: place for place, node in enumerate(nodes)}
    inputs = {node.name: node for node in nodes if node.op == "placeholder"}
    constants = {inputs[name]: value for name, value in constant_values(program).items()}
    results: Any = nodes[-1].args[0]
    for name, target in signature.inputs_to_buffers.items():
        for spec, result in zip(signature.output_specs, results, strict=True):
            if spec.kind is OutputKind.BUFFER_MUTATION and spec.target == target:
                writes = _writes(result, inputs[name], constants)
                if writes and _may_write(writes, places):
                    for write in writes:
                        _write(write, inputs[name])
    program.graph_module.recompile()


def _writes(value: Any, buffer: Node, constants: Mapping[Node, torch.Tensor]) -> list[Node]:
    """Return the writes of rows that make all of a buffer's new value, the last one first."""
    writes = list[Node]()
    while op_name(value) == _WRITE and _is_of_rows(value, constants):
        writes.append(value)
        value = value.args[0]
    return writes if value is buffer else []


def _is_of_rows(write: Node, constants: Mapping[Node, torch.Tensor]) -> bool:
    """Return True if the kernel of `index_put_` takes a write: rows along one dimension."""
    old, indices, rows, *accumulate = cast(Any, write.args)
    places = [place for place, index in enumerate(indices) if index is not None]
    if any(accumulate) or write.kwargs or len(places) != 1:
        return False
    (dim,), index = places, indices[places[0]]
    sizes = list(old.meta["val"].shape)
    sizes[dim] = index.meta["val"].shape[0] if index.meta["val"].dim() == 1 else None
    # Sizes are compared as text, since a comparison of symbols would fix them.
    if [*map(str, sizes)] != [*map(str, rows.meta["val"].shape)]:
        return False
    # The kernel takes no negative index. What is read from a table of places has none.
    table = constants.get(index.args[0]) if op_name(index) == _READ else None
    return table is not None and int(table.min()) >= 0


def _may_write(writes: Sequence[Node], places: Mapping[Node, int]) -> bool:
    """Return True if nothing reads a value, or a view of it, that a write has replaced."""
    results: Any = list(places)[-1].args[0]
    last = writes[0]
    if results.count(last) != 1 or any(view in results for view in _views(last)):
        return False
    for write in writes:
        old: Any = write.args[0]
        values = (old, *_views(old))
        readers = {user for value in values for user in value.users} - {write}
        if any(places[reader] > places[write] for reader in readers):
            return False
        if any(value in pytree.tree_leaves(write.args[1:]) for value in values):
            return False
    return True


def _views(value: Node) -> Iterator[Node]:
    """Yield the values that may be views of a value."""
    for user in value.users:
        if any(part in op_name(user) for part in _VIEWS):
            yield user
            yield from _views(user)


def _write(write: Node, buffer: Node) -> None:
    """Write in place, and let views of the result be views of the buffer."""
    write.target = edge_ops.edge.aten.index_put_.default
    for user in list(write.users):
        if op_name(user) == _VIEW:
            user.replace_input_with(write, buffer)
