"""The bytes of a .pte by part, and the kernels and backends to link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from blake3 import blake3

from etdev.app import ProgramFile
from etdev.pte.artifact import DIGEST, LEDGER

# Kinds of parts. Named data is what delegates find by name, such as their weights.
PROGRAM, CONSTANTS, STATE = "program", "constants", "state"
DELEGATE, NAMED, PLAN, PADDING = "delegate", "named data", "ledger", "padding"
KINDS = (PROGRAM, CONSTANTS, STATE, DELEGATE, NAMED, PLAN, PADDING)


@frozen
class Part:
    """Bytes of one kind.

    Args:
        kind: One of `KINDS`.
        size_bytes: Their number.
        items: Number of constants, delegates or data.
        owner: Backend of delegates, or of the delegates that name the data; empty for the rest.
        method: Method of delegates; empty for the rest.
    """

    kind: str
    size_bytes: int
    items: int = 1
    owner: str = ""
    method: str = ""


@frozen
class Kernel:
    """A kernel that has to be linked.

    Args:
        name: Its operator, such as `aten::add.out`.
        calls: Number of calls in all methods.
        dtypes: Dtypes of the tensors that it is called with.
        keys: Its calls by dtype and order of dimensions, in the form of ExecuTorch's operator
            registry.
    """

    name: str
    calls: int
    dtypes: tuple[str, ...]
    keys: tuple[str, ...]


@frozen
class Footprint:
    """The bytes of a .pte, and what has to be linked to run it.

    Args:
        size_bytes: Size of the file, which is the sum of all parts.
        parts: In the order of `KINDS`.
        repeated_bytes: Bytes of constants, data and payloads that the file has already elsewhere.
        kernels: By name.
        backends: Backends of the delegates, by name.
        external: Bytes of each constant that is in a .ptd file, by its name in the model.
    """

    size_bytes: int
    parts: tuple[Part, ...]
    repeated_bytes: int
    kernels: tuple[Kernel, ...]
    backends: tuple[str, ...]
    external: Mapping[str, int]


def measure(path: Path) -> Footprint:
    """Measure a .pte.

    Raises:
        ArtifactError: It is missing, truncated, or not a .pte.
    """
    return ProgramFile(path).unpack(lambda found: _measured(found, path.stat().st_size))


@frozen(eq=False)
class _Item:
    """A constant, a payload or named data, in a segment or in the flatbuffer itself."""

    kind: str
    content: memoryview
    owner: str = ""
    method: str = ""
    inline: bool = False


def _measured(found: Any, size_bytes: int) -> Footprint:
    plans = found.program.execution_plan
    tensors = [v.val for plan in plans for v in plan.values if type(v.val).__name__ == "Tensor"]
    items = [*_constants(found, tensors), *_payloads(found), *_named(found)]
    sizes: dict[tuple[str, str, str], list[int]] = {}
    for item in items:
        sizes.setdefault((item.kind, item.owner, item.method), []).append(len(item.content))
    program = len(found.packed) - sum(len(item.content) for item in items if item.inline)
    parts = [
        Part(PROGRAM, program),
        *(Part(kind, sum(own), len(own), *names) for (kind, *names), own in sizes.items()),
    ]
    parts.append(Part(PADDING, size_bytes - sum(part.size_bytes for part in parts)))
    return Footprint(
        size_bytes=size_bytes,
        parts=tuple(sorted(parts, key=lambda part: KINDS.index(part.kind))),
        repeated_bytes=_repeated(items),
        kernels=tuple(_kernels(plans)),
        backends=tuple(sorted({d.id for plan in plans for d in plan.delegates})),
        external=dict(_external(tensors)),
    )


def _constants(found: Any, tensors: Iterable[Any]) -> Iterator[_Item]:
    """Yield constants and initial states, without the padding behind each."""
    program = found.program
    sizes: dict[tuple[str, int], int] = {}
    for tensor in tensors:
        extra = tensor.extra_tensor_info
        state = extra is not None and tensor.allocation_info is not None
        sizes[STATE if state else CONSTANTS, tensor.data_buffer_idx] = ProgramFile.size_bytes(
            tensor
        )
    stored = [(CONSTANTS, part, False) for part in found.constants(program.constant_segment)]
    stored += [
        (STATE, part, False)
        for place in program.mutable_data_segments
        for part in found.constants(place)
    ]
    inline = [(CONSTANTS, buffer.storage, True) for buffer in program.constant_buffer]
    for constants in (stored, inline):
        numbers: Counter[str] = Counter()
        for kind, part, within in constants:
            size = sizes.get((kind, numbers[kind]), len(part))
            numbers[kind] += 1
            # The first of each is empty: its number stands for "no constant".
            if len(part):
                yield _Item(kind, part[:size], inline=within)


def _payloads(found: Any) -> Iterator[_Item]:
    """Yield the payload of each delegate; one that several share once."""
    seen = set()
    for plan in found.program.execution_plan:
        for delegate in plan.delegates:
            place = (delegate.processed.location, delegate.processed.index)
            if place not in seen:
                seen.add(place)
                inline = delegate.processed.location.name == "INLINE"
                yield _Item(DELEGATE, found.payload(delegate), delegate.id, plan.name, inline)


def _named(found: Any) -> Iterator[_Item]:
    """Yield named data, each segment once, with the backends whose payloads have its key.

    Data that is a part of the constants is counted there.
    """
    keys: dict[int, list[str]] = {}
    for key, (number, _) in found.named().items():
        if key != DIGEST and not found.is_constant(number):
            keys.setdefault(number, []).append(key)
    texts = [(item.owner, bytes(item.content)) for item in _payloads(found)] if keys else []
    for number, own in keys.items():
        # A delegate finds its data by a key that is in its payload.
        names = [key.encode() for key in own]
        owners = sorted({backend for backend, text in texts if any(n in text for n in names)})
        kind = PLAN if LEDGER in own else NAMED
        yield _Item(kind, found.segments[number], ", ".join(owners))


def _external(tensors: Iterable[Any]) -> Iterator[tuple[str, int]]:
    """Yield name and bytes of each constant in a .ptd file."""
    for tensor in tensors:
        extra = tensor.extra_tensor_info
        if extra is not None and extra.location.name == "EXTERNAL":
            yield extra.fully_qualified_name, ProgramFile.size_bytes(tensor)


def _repeated(items: Iterable[_Item]) -> int:
    """Return the bytes of contents that an earlier item has, too."""
    seen, repeated = set(), 0
    for item in items:
        digest = blake3(item.content).digest()
        repeated += len(item.content) * (digest in seen)
        seen.add(digest)
    return repeated


def _kernels(plans: Iterable[Any]) -> Iterator[Kernel]:
    """Yield all kernels by name, with the keys that ExecuTorch's selective builds take."""
    keys: dict[str, list[str]] = {}
    dtypes: dict[str, dict[str, None]] = {}
    for plan in plans:
        names = [ProgramFile.operator(operator) for operator in plan.operators]
        for name in names:
            keys.setdefault(name, [])
        for chain in plan.chains:
            for call in (item.instr_args for item in chain.instructions):
                if type(call).__name__ == "KernelCall":
                    tensors = list(_signature(plan, call))
                    name = names[call.op_index]
                    keys[name].append(f"v1/{'|'.join(map(_key, tensors))}".removesuffix("/"))
                    dtypes.setdefault(name, {}).update(
                        dict.fromkeys(map(ProgramFile.dtype, tensors))
                    )
    for name, own in sorted(keys.items()):
        yield Kernel(name, len(own), tuple(dtypes.get(name, ())), tuple(sorted({*own})))


def _signature(plan: Any, call: Any) -> Iterator[Any]:
    """Yield the tensors of a call; of a list the first, since all of a list are alike."""
    for index in call.args:
        value = plan.values[index].val
        kind = type(value).__name__
        items = value.items if kind in ("TensorList", "OptionalTensorList") else (index,)
        values = (plan.values[item].val for item in items if item >= 0)
        tensors = (value for value in values if type(value).__name__ == "Tensor")
        if (first := next(tensors, None)) is not None:
            yield first


def _key(tensor: Any) -> str:
    """Return a tensor's part of a kernel key: its ScalarType and the order of its dimensions."""
    return f"{int(tensor.scalar_type)};{','.join(map(str, tensor.dim_order))}"
