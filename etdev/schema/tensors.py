"""Tensors that cross a partition's border, constants that it reads, copies between devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from attrs import field, frozen

from etdev.schema.converters import frozen_tuple
from etdev.schema.device import Device
from etdev.schema.wording import listed

# The dtype of a symbolic size or another number.
SCALAR = "scalar"
# The end of the name of a flag of shared state.
STARTED = "_started"
# A line names this many buffers, and counts the rest.
_NAMED = 3
_SHARED = (
    "shared; load all from one Program of executorch.runtime, or in C++ with ExecuTorch's "
    "Module(..., share_memory_arenas=true)"
)


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

    forms: ClassVar[tuple[str, ...]] = ()


@frozen
class PrecisionChange:
    """A value that is quantised, dequantised or cast where it crosses a border, at every run.

    Args:
        tensor: The value, as it crosses.
        source: The partition that makes it; `portable` for the method's program, or `input`.
        target: The partition that reads it; `portable` or `output`.
        forms: Dtypes from before to after the border, such as `float32` and `int8`.
    """

    tensor: Tensor
    source: str
    target: str
    forms: tuple[str, ...] = field(converter=frozen_tuple)


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


@frozen
class Interface:
    """Names of a method's values outside, as the model has them.

    Args:
        inputs: Its arguments: `x`, or `x_0` of a list `x`.
        outputs: Its results: `logits` of a dict, `output0` of a tuple, or `output`.
        state: Sizes of the buffers that it writes, by their names in the state dict.
    """

    inputs: tuple[str, ...] = field(default=(), converter=frozen_tuple)
    outputs: tuple[str, ...] = field(default=(), converter=frozen_tuple)
    state: Mapping[str, tuple[int, ...]] = field(factory=dict)


@frozen
class SharedState:
    """A buffer that several methods share in eager PyTorch, and that at least one of them writes.

    Args:
        targets: Its name in the state dict of each method that has it, by method.
        writers: The methods that write it.
        size_bytes: Elements times item size.
        shared: True if the .pte has it once; False if each method has its own.
    """

    targets: Mapping[str, str]
    writers: tuple[str, ...] = field(converter=frozen_tuple)
    size_bytes: int
    shared: bool = True

    @property
    def flags(self) -> dict[str, str]:
        """The names of buffers that are true once a method has set it to its first value."""
        return {method: f"{target}{STARTED}" for method, target in self.targets.items()}

    def __str__(self) -> str:
        return f"{next(iter(self.targets.values()))} ({', '.join(self.targets)})"


@frozen
class StoredAgain:
    """A weight that the .pte stores more than once.

    Args:
        targets: Its names in the state dict, by method.
        holders: The plugin of each delegate, or of each backend's named data, that stores it;
            `portable` for the program itself.
        size_bytes: Elements times item size.
    """

    targets: Mapping[str, tuple[str, ...]]
    holders: tuple[str, ...] = field(converter=frozen_tuple)
    size_bytes: int

    @property
    def again_bytes(self) -> int:
        """Bytes beyond the first time."""
        return (len(self.holders) - 1) * self.size_bytes


@frozen
class Growth:
    """A plugin whose delegates are much larger than the weights that only they store.

    Args:
        plugin: The plugin.
        size_bytes: Bytes of their payloads, and of named data, which they have in common.
        weights_bytes: Bytes of the weights that nothing else in the .pte stores.
    """

    plugin: str
    size_bytes: int
    weights_bytes: int

    @property
    def more_bytes(self) -> int:
        """Bytes beyond the weights that the .pte needs in any case."""
        return self.size_bytes - self.weights_bytes

    def __str__(self) -> str:
        has = f"its delegates have {self.size_bytes} bytes"
        only = f"for {self.weights_bytes} bytes of weights that only they store"
        cure = f"leave out {self.plugin}, or pin large layers to another plugin"
        return f"{self.plugin} adds about {self.more_bytes} bytes: {has} {only}; {cure}"


def repeats(weights: Iterable[StoredAgain]) -> Iterator[str]:
    """Say which weights the .pte stores more than once, with the bytes beyond the first time."""
    groups: dict[tuple[str, str], list[StoredAgain]] = {}
    for weight in weights:
        key = (", ".join(weight.targets), ", ".join(weight.holders))
        groups.setdefault(key, []).append(weight)
    for (methods, _), own in groups.items():
        names = [next(iter(weight.targets.values()))[0] for weight in own]
        counts = Counter(own[0].holders)
        holders = ", ".join(f"{holder} {count}" for holder, count in counts.items())
        total = sum(weight.again_bytes for weight in own)
        told = f"methods {methods}: {listed(names, _NAMED)} stored {counts.total()} times"
        yield f"{told} ({holders}), {total} bytes again"


def loading(states: Iterable[SharedState]) -> Iterator[str]:
    """Say which state methods share, and what a loader has to do for it, or have each."""
    groups: dict[tuple[str, bool], list[SharedState]] = {}
    for state in states:
        groups.setdefault((", ".join(state.targets), state.shared), []).append(state)
    for (methods, shared), own in groups.items():
        names = [next(iter(state.targets.values())) for state in own]
        total = sum(state.size_bytes for state in own)
        told = f"methods {methods}: state {listed(names, _NAMED)} ({total} bytes)"
        yield f"{told} is {_SHARED if shared else 'not shared, each has its own'}"
