"""Kernels: Core ATen ops that portable kernels lack, fail on or compute wrongly.

What no plugin takes of them is decomposed with a formula. Elsewhere the op stays as it is, since a
backend may compute it, and so does one that the caller says the runtime has a kernel for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.edge.formulas import kernels, order, pooling, randoms, reductions
from etdev.graph.ops import aten_op

aten = torch.ops.aten
_Test = Callable[[Node], bool]


def _always(node: Node) -> bool:
    return True


def _integers(node: Node) -> bool:
    value = node.meta["val"]
    return not value.dtype.is_floating_point and value.dtype != torch.bool


def _signed(node: Node) -> bool:
    return _integers(node) and node.meta["val"].dtype.is_signed


def _single(node: Node) -> bool:
    return _input(node).dim() == 0


def _volumes(node: Node) -> bool:
    return len(node.args[3]) == 3 or _value(node.args[1]).dim() == 5  # type: ignore[arg-type]


def _widens(node: Node) -> bool:
    return _argument(node, 2, "half_to_float") is True


def _double(node: Node) -> bool:
    return _input(node).dtype == torch.float64


def _adds_doubles(node: Node) -> bool:
    return _value(node).dtype == torch.float64 and bool(_input(node).numel())


def _backwards(node: Node) -> bool:
    dim = _argument(node, 1, "dim")
    return isinstance(dim, int) and dim < 0


def _argument(node: Node, index: int, name: str) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name)


def _input(node: Node) -> torch.Tensor:
    return _value(node.all_input_nodes[0])


def _value(node: Any) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value


_UNFIT: Mapping[Any, tuple[_Test, Callable[..., Any]]] = {
    # The runtime has no kernel.
    aten.sort.default: (_always, order.sort),
    aten.scatter_reduce.two: (_always, reductions.scatter_reduce),
    aten.avg_pool3d.default: (_always, pooling.avg_pool3d),
    aten.max_pool3d_with_indices.default: (_always, pooling.max_pool3d),
    aten._adaptive_avg_pool3d.default: (_always, pooling.adaptive_avg_pool3d),
    aten.empty_strided.default: (_always, kernels.empty_strided),
    aten.randperm.default: (_always, randoms.randperm),
    # The kernel fails.
    aten.convolution.default: (_volumes, kernels.convolution),
    aten._log_softmax.default: (lambda node: _widens(node) or _double(node), kernels.log_softmax),
    aten._softmax.default: (_widens, kernels.softmax),
    aten.cumsum.default: (_single, kernels.cumsum_of_one),
    # It takes the process down.
    aten.sum.dim_IntList: (
        lambda node: _single(node) or _adds_doubles(node),
        lambda x, *args, **options: (
            kernels.sum_of_one if x.dim() == 0 else kernels.sum_of_doubles
        )(x, *args, **options),
    ),
    aten.unfold.default: (_single, kernels.unfold_of_one),
    aten.unfold_copy.default: (_single, kernels.unfold_of_one),
    aten.narrow.default: (_backwards, kernels.narrow_copy),
    aten.narrow_copy.default: (_backwards, kernels.narrow_copy),
    # It is wrong.
    aten.remainder.Tensor: (_signed, kernels.remainder),
    aten.remainder.Scalar: (_signed, kernels.remainder),
    aten.fmod.Tensor: (_integers, kernels.fmod),
    aten.fmod.Scalar: (_integers, kernels.fmod),
    aten.floor.default: (_integers, kernels.whole),
    aten.ceil.default: (_integers, kernels.whole),
    aten.trunc.default: (_integers, kernels.whole),
    aten.native_layer_norm.default: (_double, kernels.layer_norm),
    aten.max_pool2d_with_indices_backward.default: (_always, kernels.max_pool2d_backward),
}


def formula_of(config: EdgeCompileConfig, node: Node) -> Callable[..., Any] | None:
    """The formula for a node that no portable kernel computes as PyTorch does; None for others.

    Args:
        config: The caller's; it says which ops the runtime has a kernel for.
        node: A node of an edge-dialect program.
    """
    if node.op != "call_function":
        return None
    op = aten_op(node.target)
    if op not in _UNFIT or op in config._core_aten_ops_exception_list or op in config.preserve_ops:
        return None
    is_unfit, formula = _UNFIT[op]
    return formula if is_unfit(node) else None


def unfit(
    program: ExportedProgram, plugins: Collection[str], config: EdgeCompileConfig
) -> dict[str, tuple[str, ...]]:
    """Ops of an edge program that need a plugin or a formula, each wanted whole by all plugins.

    Args:
        program: An edge-dialect program.
        plugins: Names of the plugins.
        config: The caller's; it says which ops the runtime has a kernel for.
    """
    return {
        node.name: tuple(plugins)
        for node in program.graph.nodes
        if formula_of(config, node) is not None
    }
