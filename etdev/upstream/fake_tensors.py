"""Tensors without data, symbolic sizes, and tensors that wrap others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass

__all__ = ["FakeTensor", "FakeTensorMode", "FunctionalTensor", "active_fake_mode"]
__all__ += ["is_traceable_wrapper_subclass", "transform_subclass"]


def remade(value: FakeTensor, mode: FakeTensorMode, data: torch.Tensor) -> FakeTensor:
    """Return a fake tensor like another, in another mode and with the shape of a meta tensor."""
    constant, grad = value.constant, value.requires_grad
    is_param = getattr(value, "_is_param", False)
    return FakeTensor(
        mode, data, value.fake_device, constant=constant, requires_grad=grad, _is_param=is_param
    )


def in_shape_env(size: Any, env: ShapeEnv, renamed: Mapping[Any, Any]) -> Any:
    """Return a symbolic size in another shape env, with other names of some symbols."""
    node = size.node.with_shape_env(env)
    node._expr = node._expr.xreplace(renamed)
    return type(size)(node)


def write_count(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was written in place; None in inference mode, without a count."""
    return None if tensor.is_inference() else tensor._version
