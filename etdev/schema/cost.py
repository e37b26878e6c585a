"""The cost of nodes at their largest declared sizes, and how fast kernels are.

The speeds come from tests/benchmarks/kernels.py, in one thread, rounded to one digit. They rank
nodes and warn of slow ones; no byte of a .pte depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from attrs import frozen

# Operations and bytes per second of a delegate, of its convolutions, of ExecuTorch's optimised
# kernels and those that only copy, and of the rest.
_DELEGATE, _OPTIMISED, _PORTABLE = (4e11, 2e10), (5e10, 2e10), (8e8, 1e9)
_CONVOLUTION = (2e10, 2e10)
_WITH_OPTIMISED = (
    *("add", "bmm", "div", "elu", "exp", "gelu", "le", "linear", "log_softmax", "mm", "mul"),
    *("native_layer_norm", "sub", "sum", "cat", "clone", "_clone_dim_order", "embedding", "relu"),
    *("select_copy", "slice_copy", "split_with_sizes_copy", "squeeze_copy", "unsqueeze_copy"),
)
# Seconds that an op in a delegate, and the call of a kernel, take at least.
_DELEGATED_S, _CALL_S = 1e-6, 5e-7


@frozen
class Workload:
    """The work of nodes, each called once.

    Args:
        flops: Floating-point operations by torch's count, which has those of products,
            convolutions and attention. A multiplication and an addition are two.
        moved_bytes: Bytes that are read and written, weights included. A view has none.
    """

    flops: int = 0
    moved_bytes: int = 0

    def __add__(self, other: Workload) -> Workload:
        return Workload(self.flops + other.flops, self.moved_bytes + other.moved_bytes)

    @property
    def vanishes(self) -> bool:
        """True if there is nothing to do at run time."""
        return not (self.flops or self.moved_bytes)

    def share(self, whole: Workload) -> str:
        """Return its part of a program's cost: `3 % of the FLOPs, 41 % of the bytes`."""
        parts = (
            (self.flops, whole.flops, "FLOPs"),
            (self.moved_bytes, whole.moved_bytes, "bytes"),
        )
        texts = [f"{_percent(own / every)} of the {unit}" for own, every, unit in parts if own]
        return ", ".join(texts) or "none of the cost"


def total(costs: Mapping[str, Workload]) -> Workload:
    """Return the cost of several owners together."""
    return reduce(Workload.__add__, costs.values(), Workload())


def seconds(cost: Workload, op: str, delegated: bool) -> float:
    """Return the predicted time of an op; the slower of computing and of moving bytes counts."""
    if cost.vanishes:
        return 0.0
    packet = op.split(".")[1] if "." in op else op
    if delegated:
        speeds, least = _CONVOLUTION if packet == "convolution" else _DELEGATE, _DELEGATED_S
    else:
        speeds, least = _OPTIMISED if packet in _WITH_OPTIMISED else _PORTABLE, _CALL_S
    return least + max(cost.flops / speeds[0], cost.moved_bytes / speeds[1])


def _percent(part: float) -> str:
    return "less than 1 %" if 0 < part < 0.005 else f"{part:.0%}".replace("%", " %")
