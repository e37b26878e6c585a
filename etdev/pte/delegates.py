"""Delegates: what a .pte holds of each, and what plugins read in its payload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from etdev.errors import ArtifactError
from etdev.pte.artifact import Delegate
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.compile_specs import CompileSpec
from etdev.schema.device import CPU, Device


def delegates(
    program: Any, plan: Any, calls: list[Any], plugins: Sequence[Plugin]
) -> Iterable[Delegate]:
    """The delegates of a method in the order of their first calls, uncalled ones last.

    Args:
        program: ExecuTorch's schema object of the program.
        plan: That of the method.
        calls: Its DelegateCall instructions.
        plugins: Tell the device and the data that each delegate's payload really uses.
    """
    devices: dict[int, dict[Device, None]] = {}
    arguments: dict[int, int] = {}
    for call in calls:
        values = [plan.values[index].val for index in call.args]
        arguments.setdefault(call.delegate_index, len(values))
        used = devices.setdefault(call.delegate_index, {})
        used.update(dict.fromkeys(device(v) for v in values if type(v).__name__ == "Tensor"))
    counts = Counter(call.delegate_index for call in calls)
    read = cache(lambda index: bytes(program.backend_delegate_data[index].data))
    # Any number of delegates may share a payload, which plugins may take long to read.
    asked = cache(lambda *asked: _read(plugins, read(asked[0]), *asked[1:]))
    uncalled = [index for index in range(len(plan.delegates)) if index not in devices]
    for index in (*devices, *uncalled):
        delegate = plan.delegates[index]
        number = delegate.processed.index
        real, fault, data = (
            asked(number, delegate.id, arguments.get(index)) if plugins else _NOTHING
        )
        yield Delegate(
            backend_id=delegate.id,
            devices=tuple(sorted(devices.get(index, ()))),
            size_bytes=len(program.backend_delegate_data[number].data),
            calls=counts[index],
            compile_specs=tuple(CompileSpec(s.key, bytes(s.value)) for s in delegate.compile_specs),
            payload_device=real,
            data=data,
            native=is_native(program.backend_delegate_data[number].data),
            fault=fault,
        )


_LIBRARIES = (
    *(b"\x7fELF", b"MZ"),
    *(b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe"),
)
_NOTHING: tuple[Device | None, str, tuple[str, ...]] = (None, "", ())


def _read(
    plugins: Sequence[Plugin], payload: bytes, backend_id: str, arguments: int | None
) -> tuple[Device | None, str, tuple[str, ...]]:
    """The device that a payload uses, why it can't run, and its data, as a plugin reads them."""
    real, fault = None, ""
    try:
        real = answers.payload_device(plugins, backend_id, payload, arguments)
    except ArtifactError as error:
        fault = f"{error.what}; {error.cure}" if error.cure else error.what
    return real, fault, tuple(answers.payload_data(plugins, backend_id, payload))


def is_native(content: Any) -> bool:
    """Whether some bytes begin as a shared library of Linux, Windows or macOS does."""
    return bytes(content[:4]).startswith(_LIBRARIES)


def device(tensor: Any) -> Device:
    """The device of ExecuTorch's schema object of a tensor."""
    extra = tensor.extra_tensor_info
    return Device(extra.device_type.name.lower(), extra.device_index) if extra else CPU
