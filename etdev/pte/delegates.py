"""The delegates of a .pte, and the facts that plugins read in their payloads."""

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
    """Read the delegates of a method in the order of their first calls, uncalled ones last.

    Args:
        program: ExecuTorch's schema object of the program.
        plan: ExecuTorch's schema object of the method.
        calls: Its DelegateCall instructions.
        plugins: Plugins that can read which device and data a delegate's payload uses.
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
    # Delegates may share a payload, and a plugin may take long to read it.
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
    """Ask plugins which device a payload uses, why it can't run, and which data it looks up."""
    real, fault = None, ""
    try:
        real = answers.payload_device(plugins, backend_id, payload, arguments)
    except ArtifactError as error:
        fault = f"{error.what}; {error.cure}" if error.cure else error.what
    return real, fault, tuple(answers.payload_data(plugins, backend_id, payload))


def is_native(content: Any) -> bool:
    """Return True if some bytes begin like a shared library of Linux, Windows or macOS."""
    return bytes(content[:4]).startswith(_LIBRARIES)


def device(tensor: Any) -> Device:
    """Return the device of ExecuTorch's schema object of a tensor."""
    extra = tensor.extra_tensor_info
    return Device(extra.device_type.name.lower(), extra.device_index) if extra else CPU
