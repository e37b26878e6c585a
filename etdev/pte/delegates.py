"""Delegates: what a .pte holds of each, and what plugins read in its payload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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
    uncalled = [index for index in range(len(plan.delegates)) if index not in devices]
    for index in (*devices, *uncalled):
        delegate = plan.delegates[index]
        payload = bytes(program.backend_delegate_data[delegate.processed.index].data)
        real, fault = _payload(plugins, delegate.id, payload, arguments.get(index))
        yield Delegate(
            backend_id=delegate.id,
            devices=tuple(sorted(devices.get(index, ()))),
            size_bytes=len(payload),
            calls=counts[index],
            compile_specs=tuple(CompileSpec(s.key, bytes(s.value)) for s in delegate.compile_specs),
            payload_device=real,
            data=answers.payload_data(plugins, delegate.id, payload),
            fault=fault,
        )


def _payload(
    plugins: Sequence[Plugin], backend_id: str, payload: bytes, arguments: int | None
) -> tuple[Device | None, str]:
    """The device that a payload uses, and why it can't run; both as a plugin reads it."""
    try:
        return answers.payload_device(plugins, backend_id, payload, arguments), ""
    except ArtifactError as error:
        return None, f"{error.what}; {error.cure}" if error.cure else error.what


def device(tensor: Any) -> Device:
    """The device of ExecuTorch's schema object of a tensor."""
    extra = tensor.extra_tensor_info
    return Device(extra.device_type.name.lower(), extra.device_index) if extra else CPU
