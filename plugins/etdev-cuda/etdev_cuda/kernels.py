"""Kernels that AOTInductor calls, compared with those that CudaBackend's runtime has.

ExecuTorch's CUDA runtime has a handful of ATen's kernels. A call of any other stops the compilation
of a whole delegate, so ops are taken apart here as Inductor does it, and each piece is looked up.
Nothing else knows Inductor's tables; tests hold the answers against Inductor itself.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from attrs import define, field
from executorch.exir.sym_util import eval_expr
from torch._dispatch.python import enable_python_dispatcher
from torch._inductor.decomposition import conv1d_to_conv2d, select_decomp_table
from torch._inductor.lowering import lowerings
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from etdev.graph import aten_op, is_complex
from etdev_cuda.fallbacks import falls_back

# Inductor has a generator of its own, which makes a seed by a kernel that CudaBackend has.
_RANDOM = ("aten::rand", "aten::randn", "aten::randint")
# A size that depends on data.
_ANY_SIZE = 4
# They become Triton kernels before Inductor lowers anything.
_TRITON = "triton"


@define(eq=False)
class Kernels:
    """The kernels of CudaBackend's runtime that AOTInductor would call.

    Args:
        autotuned: Matrix products and convolutions become Triton kernels.
    """

    autotuned: bool = True
    _known: dict[Hashable, str | None] = field(factory=dict, init=False)

    def missing(self, node: Node) -> str | None:
        """Return the ATen op whose kernel would be called for a node, and is not there; or None."""
        op = aten_op(node.target)
        if not isinstance(op, OpOverload) or op.namespace == _TRITON:
            return None
        if is_complex(node):
            # Inductor generates no code for complex numbers.
            return str(op)
        with FakeTensorMode():
            args, kwargs = pytree.tree_map(_concrete, (node.args, dict(node.kwargs)))
            key = (op, str(pytree.tree_map(_look, (args, kwargs))))
            if key not in self._known:
                lacking = (piece for piece in _pieces(op, args, kwargs) if self._lacks(*piece))
                self._known[key] = next((str(piece) for piece, _ in lacking), None)
        return self._known[key]

    def _lacks(self, op: OpOverload, arguments: Mapping[str, Any]) -> bool:
        if op._schema.name in _RANDOM or _is_supported(op):
            return False
        lowering = lowerings.get(op)
        if lowering is None or getattr(lowering, "_is_fallback_handler", False):
            return True
        return falls_back(op, arguments, self.autotuned)


def _pieces(op: OpOverload, args: Any, kwargs: Any) -> list[tuple[OpOverload, Mapping[str, Any]]]:
    """Return the calls of ATen ops that Inductor makes of a call."""
    table = _table()
    if op in lowerings and op not in table:
        return [(op, _named(op, args, kwargs))]
    mode = _Apart(table)
    try:
        # CudaBackend compiles attention so, unless it has a Triton kernel for it.
        with sdpa_kernel([SDPBackend.MATH]), torch.no_grad(), enable_python_dispatcher(), mode:
            op(*args, **kwargs)
    except Exception:
        # An op that can't be traced by itself is left to the compiler.
        return []
    return mode.calls


class _Apart(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes ops apart as they run on fake tensors, and lists what stays whole."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.calls: list[tuple[OpOverload, Mapping[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Such as `prim.device`, which only asks a tensor for its device.
        if func.namespace == "prim":
            return func(*args, **kwargs)
        with self:
            result = self._decomposed(func, args, kwargs)
        if result is not NotImplemented:
            return result
        self.calls.append((func, _named(func, args, kwargs)))
        return func(*args, **kwargs)

    def _decomposed(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in self.table:
            return self.table[func](*args, **kwargs)
        return func.decompose(*args, **kwargs) if func not in lowerings else NotImplemented


@functools.cache
def _table() -> dict[Any, Any]:
    """Inductor's decompositions, and the one that CudaBackend adds."""
    return {**select_decomp_table(), torch.ops.aten.conv1d.default: conv1d_to_conv2d}


def _named(op: OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by name, with the defaults of the others."""
    arguments = op._schema.arguments
    given = {argument.name: value for argument, value in zip(arguments, args, strict=False)}
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return {**defaults, **given, **kwargs}


def _is_supported(op: OpOverload) -> bool:
    overload = "" if op._overloadname == "default" else f"_{op._overloadname}"
    return not {f"at::_ops::{op._opname}{overload}::call", op._schema.name}.isdisjoint(supported())


@functools.cache
def supported() -> frozenset[str]:
    """Names of the kernels that CudaBackend's runtime has, read from its source code.

    CudaBackend can't be imported without triton, and a plan is made without it.
    """
    spec = find_spec("executorch.backends.cuda")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    text = "\n".join((Path(folder) / "cuda_backend.py").read_text() for folder in folders)
    _, _, text = text.partition("def get_supported_fallback_kernels")
    body, _, _ = text.partition("\n    @")
    return frozenset(body.split('"')[1::2])


def _concrete(value: Any) -> Any:
    """Return a fake tensor or a number to compute with, for an argument of a node."""
    if isinstance(value, Node):
        return pytree.tree_map(_concrete, value.meta["val"])
    if isinstance(value, torch.Tensor):
        sizes = [_concrete(size) for size in value.shape]
        return torch.empty(sizes, dtype=value.dtype)
    if isinstance(value, torch.SymInt):
        size = eval_expr(value)
        return _ANY_SIZE if size is None else size
    return value


def _look(value: Any) -> Any:
    return (value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else value
