"""Causes: what ExecuTorch says of a whole program while it emits it, said of nodes."""

from __future__ import annotations

import re

from executorch.exir import EdgeProgramManager
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from etdev.errors import LoweringError
from etdev.graph.nodes import calls_in, op_name, upper_bound
from etdev.graph.source import ops_with_lines, where
from etdev.graph.symbols import unbacked

# Followed by a set of ops without their overloads, such as `{'torchao::embedding'}`.
_WITHOUT_KERNELS = "Missing out variants"


def name_cause(manager: EdgeProgramManager, error: RuntimeError) -> None:
    """Say which nodes an error of ExecuTorch is about, if it is a known one.

    Raises:
        LoweringError: There are some.
    """
    if "upper bound" in str(error):
        _name_unbounded(manager, error)
    if _WITHOUT_KERNELS in str(error):
        _name_without_kernels(manager, error)
    if isinstance(error, GuardOnDataDependentSymNode):
        _name_unordered(manager, error)


def _name_without_kernels(manager: EdgeProgramManager, error: RuntimeError) -> None:
    """Name the ops that no plugin took and that have no form for a kernel."""
    ops = {name.replace("::", ".") for name in re.findall(r"'(\w+::\w+)", str(error))}
    roots = [manager.exported_program(name).graph_module for name in manager.methods]
    nodes = [n for root in roots for n in calls_in(root) if op_name(n).rpartition(".")[0] in ops]
    if nodes:
        raise LoweringError(
            "to_executorch",
            f"no plugin took {ops_with_lines(nodes)}, and ExecuTorch has no kernel without an out "
            "variant of the op",
            "write it with other ops, give it to a plugin, or register its out variant and kernel",
        ) from error


def _name_unbounded(manager: EdgeProgramManager, error: RuntimeError) -> None:
    """Say which value has a size that depends on data and that nothing bounds."""
    for method in manager.methods:
        for node in manager.exported_program(method).graph.nodes:
            sizes = getattr(node.meta.get("val"), "shape", ())
            unbounded = [size for size in sizes if upper_bound(size) is None]
            if unbounded:
                raise LoweringError(
                    "to_executorch",
                    f"{node.name} of method {method!r} has size {unbounded[0]}, which depends on "
                    f"data and has no upper bound{where(node)}",
                    "bound it in the model, such as with torch._check(n <= 1024)",
                ) from error


def _name_unordered(manager: EdgeProgramManager, error: RuntimeError) -> None:
    """Say which value has strides that ExecuTorch can't put in order."""
    for method in manager.methods:
        for node in manager.exported_program(method).graph.nodes:
            inner = getattr(node.meta.get("val"), "shape", ())[1:]
            if unbacked(inner):
                raise LoweringError(
                    "to_executorch",
                    f"{node.name} of method {method!r} has inner sizes {tuple(inner)}, "
                    "and ExecuTorch can't tell the order in memory where one that depends on data "
                    f"may be 0{where(node)}",
                    "transpose it, so that the dimension that depends on data is the first",
                ) from error
