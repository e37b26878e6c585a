"""A record of weights, to find out afterwards if anything was written to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram

from etdev.errors import LoweringError
from etdev.graph.signature import unwritten_constants
from etdev.schema.plan import MethodPlan, Plan
from etdev.upstream.fake_tensors import write_count

# Number of places of a tensor whose bytes are compared.
_SAMPLES = 16
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@frozen(eq=False)
class TensorWas:
    """A tensor as it was.

    torch counts writes in place, but not those through `.data` or NumPy. Samples of the bytes show
    these, unless only few places are written.
    """

    value: Any
    count: int | None
    sample: bytes

    @classmethod
    def of(cls, value: Any) -> TensorWas:
        """Record a tensor as it is now; any other object counts by its identity."""
        # Objects such as engines aren't tensors.
        count = write_count(value) if isinstance(value, torch.Tensor) else None
        return cls(value, count, _sample(value))

    def is_still(self, value: Any) -> bool:
        """Return True if a tensor is this one, and nothing has been written to it."""
        now = TensorWas.of(value)
        return value is self.value and (now.count, now.sample) == (self.count, self.sample)


def _sample(value: Any) -> bytes:
    """Return bytes of a tensor in host memory, from places that are spread over it."""
    plain = type(value) in _PLAIN and value.device.type == "cpu" and not value.is_quantized
    if not plain or value.layout != torch.strided or not value.numel() or value.is_conj():
        return b""
    tensor = value.detach()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in steps)
    count = min(extent, _SAMPLES)
    places = tensor.as_strided((count,), (extent // count,), tensor.storage_offset())
    return bytes(places.clone().view(torch.uint8).numpy())


@frozen(eq=False)
class Weights:
    """The weights that a .pte takes from the model when it is emitted.

    Args:
        tensors: The weights outside of delegates, as they were when the delegates were compiled, by
            method and name in the state dict.
    """

    tensors: Mapping[tuple[str, str], TensorWas]

    @classmethod
    def of(cls, programs: Mapping[str, ExportedProgram], plan: Plan) -> Weights:
        """Record the weights of the edge-dialect programs that a plan is for."""
        tensors = {}
        for method, program in programs.items():
            values = {**program.constants, **program.state_dict}
            for target in _outside(program, plan[method]):
                tensors[method, target] = TensorWas.of(values[target])
        return cls(tensors)

    def refuse_changes(self) -> None:
        """Refuse to emit weights that were changed since delegates took theirs.

        Raises:
            LoweringError: A weight has been written to since.
        """
        for (method, target), was in self.tensors.items():
            if not was.is_still(was.value):
                raise LoweringError(
                    method,
                    f"{target!r} was changed after the model was lowered",
                    "lower it again, or change a copy of the model",
                )


def _outside(program: ExportedProgram, plan: MethodPlan) -> Iterator[str]:
    """Yield the targets of the weights that are read outside of delegates that hold them."""
    inside: dict[str, set[str]] = {}
    for partition in plan.partitions:
        for constant in partition.constants:
            if constant.inside:
                inside.setdefault(constant.name, set()).update(partition.nodes)
    targets = unwritten_constants(program)
    for node in program.graph.find_nodes(op="placeholder"):
        readers = {user.name for user in node.users}
        if node.name in targets and readers - inside.get(node.name, set()):
            yield targets[node.name]
