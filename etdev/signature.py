"""Graph signatures: small helpers where programs are taken apart and put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export.graph_signature import OutputSpec, SymIntArgument, TensorArgument
from torch.fx import Node


def argument(node: Node) -> TensorArgument | SymIntArgument:
    """How a signature names a node: as a tensor, or as a symbolic size."""
    if isinstance(node.meta.get("val"), (torch.SymInt, int)):
        return SymIntArgument(node.name)
    return TensorArgument(node.name)


def renamed(spec: OutputSpec, names: Mapping[str, str]) -> OutputSpec:
    """An output spec whose node is called something else now."""
    name: Any = getattr(spec.arg, "name", None)
    if name not in names:
        return spec
    return OutputSpec(spec.kind, type(spec.arg)(names[name]), spec.target)  # type: ignore[call-arg]
