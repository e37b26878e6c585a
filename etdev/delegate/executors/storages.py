"""Weights: a program's tensors apart from it, each storage once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field
from torch import Tensor

from etdev.delegate.executors.plain import Stays, plain, restored
from etdev.upstream.fake_tensors import FakeTensor

Storages = Sequence[Tensor]


@define(eq=False)
class Weights:
    """Storages that tensors are described by, in the order in which they came.

    Args:
        storages: Each as its bytes, shared with the tensors.
    """

    storages: list[Tensor] = field(factory=list)
    _numbers: dict[tuple[int, int], int] = field(factory=dict)

    def describe(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Some tensors as JSON has them, with the numbers of their storages.

        Raises:
            Stays: There is something that is not a plain tensor of the CPU.
        """
        return {name: self._described(name, value) for name, value in tensors.items()}

    def add(self, storage: Tensor) -> int:
        """The number of a storage, given as its bytes."""
        return self._number(storage)

    def _described(self, name: str, value: object) -> Any:
        ordinary = type(value) in (Tensor, torch.nn.Parameter, torch.nn.Buffer)
        if not isinstance(value, Tensor) or not ordinary or isinstance(value, FakeTensor):
            raise Stays(f"the weight {name} is a {type(value).__name__}")
        odd = value.is_conj() or value.is_neg() or value.is_quantized
        if odd or value.device.type != "cpu" or value.layout != torch.strided:
            raise Stays(f"the weight {name} is a {value.layout} tensor on {value.device}")
        geometry = tuple(value.shape), value.stride(), value.storage_offset()
        kind = "parameter" if isinstance(value, torch.nn.Parameter) else "tensor"
        described = (kind, value.dtype, value.requires_grad, geometry, self._number(value))
        return plain(described)

    def _number(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        key = storage.data_ptr(), storage.nbytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.storages)
            self.storages.append(torch.empty(0, dtype=torch.uint8).set_(storage))
        return self._numbers[key]


def weights(described: Mapping[str, Any], storage: Callable[[int], Tensor]) -> dict[str, Tensor]:
    """The tensors that were described.

    Args:
        described: What `Weights.describe` returned.
        storage: Gives the bytes of a number, afresh each time: backends may change what they are
            given.
    """
    return {name: _weight(restored(value), storage) for name, value in described.items()}


def _weight(described: Any, storage: Callable[[int], Tensor]) -> Tensor:
    kind, dtype, needs_grad, (shape, stride, offset), number = described
    whole = storage(number).untyped_storage()
    tensor = torch.empty(0, dtype=dtype).set_(whole, offset, shape, stride)
    if kind == "parameter":
        return torch.nn.Parameter(tensor, needs_grad)
    return tensor.requires_grad_(needs_grad)
