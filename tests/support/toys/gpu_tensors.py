"""A fake GPU: tensors that say they are on `cuda:0`, and whose bytes nobody reads from here.

There is no GPU, so their values are kept on the host, and ops on them are computed there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

CUDA = torch.device("cuda", 0)


class GpuStorage:
    """Memory of the fake GPU; reading it from here, as reading a GPU's, crashes the process."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage = storage

    def data_ptr(self) -> int:
        return self.storage.data_ptr() + (1 << 52)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.storage, name)


class OnGpu(torch.Tensor):
    """A tensor on the fake GPU; only `.cpu()` brings its bytes here."""

    @staticmethod
    def __new__(cls, value: torch.Tensor) -> OnGpu:
        return torch.Tensor._make_wrapper_subclass(
            cls, value.shape, value.stride(), value.storage_offset(), dtype=value.dtype, device=CUDA
        )

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def untyped_storage(self) -> Any:
        return GpuStorage(self.value.untyped_storage())

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, options = pytree.tree_map_only(cls, lambda t: t.value, (args, dict(kwargs or {})))
        there = options.pop("device", CUDA)
        result = op(*given, **options)
        if torch.device(there).type == "cpu":
            return result
        return pytree.tree_map_only(torch.Tensor, cls, result)
