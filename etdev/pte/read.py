"""Reading of a .pte file, or of ExecuTorch's schema objects, into an Artifact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

from etdev.errors import ArtifactError
from etdev.pte.artifact import (
    DIGEST,
    LEDGER,
    STATE,
    Arena,
    Artifact,
    Delegate,
    MethodArtifact,
    Value,
)
from etdev.pte.embedded_plan import state_of
from etdev.pte.opening import is_constant, opened, program_of
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.device import CPU, Device
from etdev.schema.dtypes import DTYPES
from etdev.schema.partition import CompileSpec

# Operators that copy between devices.
COPIES = "et_copy::"
_DTYPES = {dtype.code: dtype.name for dtype in DTYPES}
# Without plugins nothing is known of a payload: its device, its fault and its data.
_UNREAD: tuple[Device | None, str, tuple[str, ...]] = (None, "", ())
# The first bytes of shared libraries.
_LIBRARIES = (
    *(b"\x7fELF", b"MZ"),
    *(b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe"),
)


@frozen(eq=False)
class Compiled:
    """A delegate as the runtime gets it, with all named data of the .pte by key."""

    backend_id: str
    payload: bytes
    compile_specs: tuple[CompileSpec, ...]
    named_data: Mapping[str, bytes]


def read(path: str | Path, plugins: Sequence[Plugin] = ()) -> Artifact:
    """Read a .pte; `plugins` can read which device and data a delegate's payload uses.

    Raises:
        ArtifactError: It is missing, truncated, or not a .pte.
    """
    file = Path(path)
    return opened(file, lambda data: _artifact(file, data, plugins))


def compiled(path: str | Path) -> dict[str, list[Compiled]]:
    """Read the delegates of every method, in the order of their first calls."""
    return opened(Path(path), _compiled)


def _compiled(data: memoryview) -> dict[str, list[Compiled]]:
    program, named = program_of(data)
    payloads, found = program.backend_delegate_data, {}
    contents = {key: bytes(content) for key, (_, content) in named.items()}
    for plan in program.execution_plan:
        calls = _instructions(plan, "DelegateCall")
        order = dict.fromkeys(call.delegate_index for call in calls)
        found[plan.name] = [
            Compiled(each.id, bytes(payloads[each.processed.index].data), _specs(each), contents)
            for each in map(plan.delegates.__getitem__, order)
        ]
    return found


def _specs(delegate: Any) -> tuple[CompileSpec, ...]:
    return tuple(CompileSpec(spec.key, bytes(spec.value)) for spec in delegate.compile_specs)


def methods_in(program: bytes) -> tuple[MethodArtifact, ...]:
    """Return the methods of a program in memory, as ExecuTorch emitted it."""
    return methods_of(program_of(memoryview(program))[0])


def methods_of(program: Any, plugins: Sequence[Plugin] = ()) -> tuple[MethodArtifact, ...]:
    """Read the methods of ExecuTorch's schema object of a program, as emitted or as unpacked."""
    return tuple(_method(program, plan, plugins) for plan in program.execution_plan)


def _artifact(file: Path, data: memoryview, plugins: Sequence[Plugin]) -> Artifact:
    program, named = program_of(data)
    _, ledger = named.pop(LEDGER, (0, b""))
    _, state = named.pop(STATE, (0, b""))
    named.pop(DIGEST, None)
    sizes = dict(named.values())
    return Artifact(
        path=str(file),
        size_bytes=len(data),
        constants_bytes=sum(len(buffer.storage) for buffer in program.constant_buffer),
        # ExecuTorch writes equal data once.
        named_bytes=sum(len(data) for n, data in sizes.items() if not is_constant(program, n)),
        named=tuple(named),
        methods=methods_of(program, plugins),
        ledger_bytes=len(ledger),
        native=tuple(key for key, (_, content) in named.items() if _is_native(content)),
        state=state_of(file, state),
    )


def _method(program: Any, plan: Any, plugins: Sequence[Plugin]) -> MethodArtifact:
    calls = _instructions(plan, "DelegateCall")
    counts, used = Counter[str](), dict[str, list[Any]]()
    for call in _instructions(plan, "KernelCall"):
        name = operator_name(plan.operators[call.op_index])
        counts[name] += 1
        used.setdefault(name, []).extend(_tensors(plan, call))
    tensors = [value.val for value in plan.values if type(value.val).__name__ == "Tensor"]
    extras = [tensor.extra_tensor_info for tensor in tensors if tensor.extra_tensor_info]
    external = [str(e.fully_qualified_name) for e in extras if e.location.name == "EXTERNAL"]
    return MethodArtifact(
        name=plan.name,
        inputs=tuple(_value(plan.values[index].val) for index in plan.inputs),
        outputs=tuple(_value(plan.values[index].val) for index in plan.outputs),
        delegates=tuple(_delegates(program, plan, calls, plugins)),
        kernels={name: n for name, n in counts.most_common() if not name.startswith(COPIES)},
        operators=tuple(operator_name(operator) for operator in plan.operators),
        dtypes={name: tuple(dict.fromkeys(map(dtype_of, own))) for name, own in used.items()},
        host_to_device=counts[f"{COPIES}_h2d_copy.out"],
        device_to_host=counts[f"{COPIES}_d2h_copy.out"],
        arenas=tuple(_arenas(plan)),
        misplaced=(*_stray(plan, tensors), *_off_host(used)),
        external=tuple(dict.fromkeys(external)),
    )


def _instructions(plan: Any, kind: str) -> list[Any]:
    items = [item.instr_args for chain in plan.chains for item in chain.instructions]
    return [item for item in items if type(item).__name__ == kind]


def _stray(plan: Any, tensors: Iterable[Any]) -> Iterable[str]:
    """Describe planned tensors whose arena is on another device."""
    arenas = {index: arena.device for index, arena in enumerate(_arenas(plan), 1)}
    for tensor in tensors:
        info = tensor.allocation_info
        if info and (arena := arenas.get(info.memory_id, CPU)) != device(tensor):
            yield f"a tensor on {device(tensor)} has its memory on {arena}"


def _off_host(used: Mapping[str, Sequence[Any]]) -> Iterable[str]:
    """Describe kernels, except copies between devices, that get a tensor that is not on the CPU."""
    for name, tensors in used.items():
        for tensor in () if name.startswith(COPIES) else tensors:
            if not device(tensor).is_cpu:
                yield f"the kernel {name} is given a tensor on {device(tensor)}"


def _tensors(plan: Any, call: Any) -> list[Any]:
    values = [plan.values[index].val for index in call.args if index >= 0]
    return [value for value in values if type(value).__name__ == "Tensor"]


def _arenas(plan: Any) -> Iterable[Arena]:
    labels = getattr(plan, "non_const_buffer_device", None) or ()
    where = {item.buffer_idx: _device(item) for item in labels}
    # Buffer 0 stands for the constants and is not planned.
    for index, size in enumerate(plan.non_const_buffer_sizes[1:], 1):
        yield Arena(where.get(index, CPU), size)


def _value(value: Any) -> Value:
    kind = type(value).__name__
    if kind != "Tensor":
        return Value(kind)
    dynamic = value.shape_dynamism.name != "STATIC"
    return Value(kind, dtype_of(value), value.sizes, dynamic, device(value), value.dim_order)


def dtype_of(tensor: Any) -> str:
    """Return torch's name of a tensor's dtype."""
    kind = tensor.scalar_type
    return _DTYPES.get(int(kind), str(kind.name).lower())


def bytes_of(tensor: Any) -> int:
    """Return the size of a tensor's values, also of a dtype that torch doesn't have."""
    return _value(tensor).size_bytes


def operator_name(operator: Any) -> str:
    return f"{operator.name}.{operator.overload}" if operator.overload else str(operator.name)


def _delegates(
    program: Any, plan: Any, calls: list[Any], plugins: Sequence[Plugin]
) -> Iterable[Delegate]:
    """Read the delegates of a method in the order of their first calls, uncalled ones last."""
    devices: dict[int, dict[Device, None]] = {}
    values: dict[int, tuple[Value, ...]] = {}
    for call in calls:
        given = (plan.values[index].val for index in call.args if index >= 0)
        values.setdefault(call.delegate_index, tuple(map(_value, given)))
        used = devices.setdefault(call.delegate_index, {})
        used.update(dict.fromkeys(map(device, _tensors(plan, call))))
    counts = Counter(call.delegate_index for call in calls)
    payloads = program.backend_delegate_data
    # Delegates may share a payload, and a plugin may take long to read it.
    read = cache(lambda number, *asked: _asked(plugins, bytes(payloads[number].data), *asked))
    uncalled = [index for index in range(len(plan.delegates)) if index not in devices]
    for index in (*devices, *uncalled):
        delegate = plan.delegates[index]
        number = delegate.processed.index
        arguments = len(values[index]) if index in values else None
        real, fault, data = read(number, delegate.id or "", arguments) if plugins else _UNREAD
        yield Delegate(
            backend_id=delegate.id or "",
            devices=tuple(sorted(devices.get(index, ()))),
            size_bytes=len(payloads[number].data),
            calls=counts[index],
            compile_specs=_specs(delegate),
            payload_device=real,
            data=data,
            native=_is_native(payloads[number].data),
            fault=fault,
            values=values.get(index, ()),
        )


def _asked(
    plugins: Sequence[Plugin], payload: bytes, backend_id: str, arguments: int | None
) -> tuple[Device | None, str, tuple[str, ...]]:
    """Ask plugins which device a payload uses, why it can't run, and which data it looks up."""
    try:
        real, fault = answers.payload_device(plugins, backend_id, payload, arguments), ""
    except ArtifactError as error:
        real, fault = None, f"{error.what}; {error.cure}" if error.cure else error.what
    return real, fault, tuple(answers.payload_data(plugins, backend_id, payload))


def _is_native(content: Any) -> bool:
    """Return True if some bytes begin like a shared library of Linux, Windows or macOS."""
    return bytes(content[:4]).startswith(_LIBRARIES)


def device(tensor: Any) -> Device:
    """Return the device of ExecuTorch's schema object of a tensor."""
    return _device(tensor.extra_tensor_info) if tensor.extra_tensor_info else CPU


def _device(label: Any) -> Device:
    return Device(label.device_type.name.lower(), label.device_index)
