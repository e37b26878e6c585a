"""Kernels: Core ATen ops that portable kernels lack, fail on or compute wrongly.

What no plugin takes of them is decomposed with a formula. Elsewhere the op stays as it is, since a
backend may compute it, and so does one that the caller says the runtime has a kernel for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.edge.faults import MISSING, RARELY_UNFIT, UNFIT, Faults
from etdev.edge.keep_whole import take_marks
from etdev.errors import LoweringError
from etdev.graph.expand import Expander
from etdev.graph.nodes import op_name
from etdev.graph.ops import aten_op
from etdev.graph.source import where


def formula_of(config: EdgeCompileConfig, node: Node) -> Callable[..., Any] | None:
    """The formula for a node that no portable kernel computes as PyTorch does; None for others.

    Args:
        config: The caller's; it says which ops the runtime has a kernel for.
        node: A node of an edge-dialect program.
    """
    op = aten_op(node.target)
    if op in config._core_aten_ops_exception_list or op in config.preserve_ops:
        return None
    return next(_formulas(node, MISSING, UNFIT, RARELY_UNFIT), _own_pieces(op))


def _formulas(node: Node, *tables: Faults) -> Iterator[Callable[..., Any]]:
    op = aten_op(node.target) if node.op == "call_function" else None
    for table in tables:
        if op in table:
            is_unfit, formula = table[op]
            if is_unfit(node):
                yield formula


@cache
def _own_pieces(op: Any) -> Callable[..., Any] | None:
    """How an op of another library is written in torch, if it has no form for a kernel.

    torch keeps such an op whole, as torchao wants of its quantisers; a backend may take it so.
    """
    if not isinstance(op, OpOverload) or op.namespace in ("aten", "prims"):
        return None
    overloads = op._overloadpacket.overloads()  # type: ignore[no-untyped-call]
    if any(name.endswith("out") for name in overloads):
        return None
    table = torch.export.default_decompositions()
    # Its `get` is that of dict, which knows nothing of it.
    return table[op] if op in table else None  # noqa: SIM401


def wanted_whole(
    program: ExportedProgram, plugins: Collection[str], config: EdgeCompileConfig
) -> dict[str, tuple[str, ...]]:
    """The ops that plugins wanted whole, whose marks are removed, and those that all of them want.

    Args:
        program: An edge-dialect program.
        plugins: Names of the plugins.
        config: The caller's; it says which ops the runtime has a kernel for.
    """
    everyone, nodes = tuple(plugins), program.graph.nodes
    # They need a plugin or a formula.
    unfit = {node.name: everyone for node in nodes if formula_of(config, node) is not None}
    # Ops of other libraries, whatever a plugin said of them: some backends know a layer by the ops
    # that quantise for it, which is lost once another plugin has one of their pieces.
    foreign = {
        node.name: everyone
        for node in nodes
        if node.op == "call_function" and _own_pieces(aten_op(node.target)) is not None
    }
    return {**unfit, **take_marks(program), **foreign}


def refuse_unfit(
    program: ExportedProgram,
    fallback: Collection[str],
    whole: Collection[str],
    expander: Expander,
) -> None:
    """Refuse what is left to a portable kernel that can't compute it, and no formula can either.

    Args:
        program: An edge-dialect program whose unfit ops are decomposed as far as they can be.
        fallback: The nodes that no plugin took.
        whole: The ops that were kept whole until the plugins had been asked.
        expander: What decomposed them.

    Raises:
        LoweringError: There is one.
    """
    config, names = expander.compile_config, set(fallback)
    nodes = {node.name: node for node in program.graph.nodes if node.name in names}
    lacking = {name for name, node in nodes.items() if formula_of(config, node) is not None}
    # What could be decomposed further is part of a formula on purpose.
    parts = set(expander.decomposable(program, lacking))
    for name, node in nodes.items():
        if name in whole or (name in lacking and name not in parts):
            refuse_node(node, config)


def refuse_node(node: Node, config: EdgeCompileConfig) -> None:
    """Refuse one such node.

    Raises:
        LoweringError: Its kernel fails, or is wrong for ordinary values.
    """
    formula = formula_of(config, node)
    if formula is not None and formula in _formulas(node, UNFIT):
        raise LoweringError(
            "edge conversion",
            f"the portable kernel of {op_name(node)} fails or is wrong for what {node.name} "
            f"gives it{where(node)}, and no formula does without it",
            "write it with other ops or dtypes, export it with fixed sizes, or give it to a plugin",
        )


def fails(node: Node) -> bool:
    """Whether a node has no portable kernel, or one that fails or is wrong for ordinary values."""
    own = _own_pieces(aten_op(node.target)) if node.op == "call_function" else None
    return own is not None or any(_formulas(node, MISSING, UNFIT))


def fails_rarely(node: Node) -> bool:
    """Whether the portable kernel of a node is wrong for some values, such as NaN."""
    return any(_formulas(node, RARELY_UNFIT))
