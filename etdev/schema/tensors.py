"""Tensors that cross a partition's border, constants that it reads, copies between devices."""

from __future__ import annotations

from attrs import field, frozen

from etdev.schema.converters import frozen_tuple
from etdev.schema.device import Device

# The dtype of a symbolic size or another number.
SCALAR = "scalar"


@frozen
class Tensor:
    """A value that crosses the border of a partition.

    Args:
        name: Graph node that produces it.
        dtype: torch's name of it without `torch.`; `scalar` for a symbolic size or another number.
        shape: Sizes; a dynamic size is its symbolic expression as text.
        size_bytes: Elements times item size; the upper bound if a size is dynamic, None without an
            upper bound.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] = field(converter=frozen_tuple)
    size_bytes: int | None

    @property
    def dynamic(self) -> bool:
        """True if some size is known only at run time."""
        return any(isinstance(size, str) for size in self.shape)


@frozen
class Copy:
    """A value that is copied at every run from one device to another; one of the two is the CPU."""

    tensor: Tensor
    source: Device
    target: Device


@frozen
class Constant:
    """A parameter, buffer or lifted tensor that a partition reads.

    Args:
        name: Graph input name in the program.
        target: Name in the state dict, such as `encoder.layer.0.weight`.
        kind: `parameter`, `buffer` or `constant`.
        dtype: torch's name of it without `torch.`.
        shape: Sizes, as in the state dict.
        size_bytes: Elements times item size, before alignment.
        update: Node whose value the method writes to it; None for a true constant.
        grouped: True if one of the partition's groups names it.
        storage: `outside` (ExecuTorch keeps it and passes it in), `owned` (travels in this delegate
            only), `shared` (with other delegates of the backend, through named data) or `copied`
            (stored more than once).
        copies: Number of times that the .pte stores it.
    """

    name: str
    target: str
    kind: str
    dtype: str
    shape: tuple[int, ...] = field(converter=frozen_tuple)
    size_bytes: int
    update: str | None = None
    grouped: bool = False
    storage: str = "outside"
    copies: int = 1

    @property
    def mutated(self) -> bool:
        """True if the method writes to it, so that no delegate may freeze its value."""
        return self.update is not None

    @property
    def inside(self) -> bool:
        """True if it travels inside the delegate."""
        return self.storage != "outside"
