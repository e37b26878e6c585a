"""Devices, as ExecuTorch writes them into a .pte, and the devices of this machine."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from attrs import Attribute, field, frozen

from etdev.errors import DeviceError, shown

# Members of executorch.exir.schema.DeviceType, spelled out because importing the schema imports
# torch; tests/unit/schema/test_device.py holds the two together.
DEVICE_TYPES = ("cpu", "cuda")
# The .pte stores the index in a signed byte.
MAX_INDEX = 127
_KIND = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_TEXT = re.compile(r"([a-z][a-z0-9_]*)(?::(0|[1-9][0-9]{0,2}))?\Z", re.ASCII)
_VALID = f"valid are cpu, cuda:0 to cuda:{MAX_INDEX}, and kinds of plugins' own, as npu:0"
# ExecuTorch has had a generic type of this name, which names no memory.
_GENERIC = "gpu"


def _check_type(_: Device, __: Attribute[str], value: object) -> None:
    if value in DEVICE_TYPES:
        return
    # Such as `cud` or `cuda1`: a kind of a plugin's own looks like none of ExecuTorch's.
    known = isinstance(value, str) and difflib.get_close_matches(value, DEVICE_TYPES, 1, 0.7)
    if known or value == _GENERIC or not (isinstance(value, str) and _KIND.fullmatch(value)):
        raise DeviceError("device", f"unknown type {value!r}", _VALID)


def _check_index(device: Device, _: Attribute[int], value: int) -> None:
    # bool is an int in Python, and Device("cuda", True) is a mistake, not cuda:1.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INDEX:
        raise DeviceError("device", f"index {value!r} of {device.type} is out of range", _VALID)
    if device.type == "cpu" and value != 0:
        raise DeviceError("device", f"cpu:{value} does not exist, there is one CPU", _VALID)


@frozen(order=True)
class Device:
    """The place where a partition runs, written `type:index` as in torch.

    Args:
        type: A member of ExecuTorch's `DeviceType` in lower case, `cpu` or `cuda`; or a kind of a
            plugin's own, such as `npu`, whose tensors are in the host's memory.
        index: 0 to 127; 0 on the CPU.

    Raises:
        DeviceError: The type is unknown or the index out of range.

    Example:
        >>> Device.parse("cuda:1")
        Device(type='cuda', index=1)
        >>> str(Device("cpu"))
        'cpu'
    """

    type: str = field(validator=_check_type)
    index: int = field(default=0, validator=_check_index)

    @classmethod
    def parse(cls, text: object) -> Device:
        """Read `cpu`, `cuda` (meaning `cuda:0`) or `cuda:N`; anything else is a DeviceError."""
        if isinstance(text, Device):
            return text
        match = _TEXT.match(text) if isinstance(text, str) else None
        if match is None:
            raise DeviceError("device", f"cannot read {shown(text)}", _VALID)
        kind, index = match.groups()
        return cls(kind, int(index or 0))

    @property
    def is_cpu(self) -> bool:
        """True for the host, which needs no copies."""
        return self.type == "cpu"

    @property
    def memory(self) -> Device:
        """The device that holds its tensors, which is their label in a .pte."""
        return self if self.type in DEVICE_TYPES else CPU

    def __str__(self) -> str:
        return self.type if self.is_cpu else f"{self.type}:{self.index}"


CPU = Device("cpu")
# A method name that stands for all methods not named.
ANY_METHOD = "*"


def per_method(value: object) -> dict[str, Device]:
    """Return devices per method from `"cuda:1"`, for all methods, or `{"forward": "cuda:0"}`.

    Raises:
        DeviceError: A device can't be read.
    """
    table = value if isinstance(value, Mapping) else {ANY_METHOD: value}
    return {method: Device.parse(text) for method, text in table.items()}


def devices(value: object) -> dict[str, dict[str, Device]]:
    """Return devices per plugin and method from `{"cuda": "cuda:1"}` or None.

    Raises:
        DeviceError: It is not a mapping, or a device can't be read.
    """
    if not isinstance(value, (Mapping, type(None))):
        cure = 'write {"cuda": "cuda:1"}'
        raise DeviceError("devices", f"{shown(value)} is not a mapping", cure)
    table = {}
    for plugin, own in (value or {}).items():
        try:
            table[plugin] = per_method(own)
        except DeviceError as error:
            raise DeviceError(f"devices[{plugin!r}]", error.what, error.cure) from None
    return table


def for_method(devices: Mapping[str, Device], method: str) -> Device | None:
    """Return the device of a method from a result of `per_method`; None if it has none."""
    return devices.get(method, devices.get(ANY_METHOD))


def _devices(value: Iterable[Device | str]) -> tuple[Device, ...]:
    if isinstance(value, str):
        raise DeviceError("device", f"{value!r} is not a list of devices", f'write ["{value}"]')
    return tuple(Device.parse(item) for item in value)


@frozen
class Probe:
    """A plugin's report on this machine.

    Args:
        devices: The devices here that its partitions can run on.
        unfit: The reason, with the cure in one line, why it can't compile here; None if it can.
    """

    devices: tuple[Device, ...] = field(default=(CPU,), converter=_devices)
    unfit: str | None = None
