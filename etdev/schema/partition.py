"""Partitions, the nodes that become one delegate, with their compile specs and device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import evolve, field, frozen
from attrs.validators import in_, instance_of

from etdev.errors import DeviceError, PluginError
from etdev.schema.converters import frozen_tuple, one_line
from etdev.schema.device import CPU, Device
from etdev.schema.tensors import Constant, Tensor

# From the strongest to the weakest; every device has one.
DEVICE_SOURCES = ("pinned", "derived", "assumed", "default")
TARGET_DEVICE = "target_device"
# The spec of a device that ExecuTorch doesn't know, since it refuses others as target devices.
OWN_DEVICE = "etdev_device"
# A longer value of a compile spec is not shown.
_SHOWN = 40


@frozen
class CompileSpec:
    """One `key: bytes` pair handed to a backend's compiler and to its runtime.

    Has the content of ExecuTorch's CompileSpec, is frozen, and needs no import of ExecuTorch.

    Args:
        key: The name that the backend looks for.
        value: The bytes that the compiler and the runtime are given.
    """

    key: str = field(validator=one_line)
    value: bytes = field(validator=instance_of(bytes))

    def __str__(self) -> str:
        text = self.value.decode(errors="replace")
        plain = text.isprintable() and len(text) <= _SHOWN
        return f"{self.key}={text if plain else f'{len(self.value)} bytes'}"


class SpecLike(Protocol):
    """The attributes of ExecuTorch's CompileSpec and of etdev's."""

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> bytes: ...


def compile_specs(value: Mapping[str, bytes] | Iterable[SpecLike]) -> tuple[CompileSpec, ...]:
    """Return compile specs from ExecuTorch's, from etdev's, or from a mapping of key to bytes."""
    if isinstance(value, Mapping):
        return tuple(CompileSpec(key, data) for key, data in value.items())
    # Through memoryview, since bytes(3) is three zeros.
    specs = frozen_tuple(value)
    return tuple(CompileSpec(spec.key, bytes(memoryview(spec.value))) for spec in specs)


def target_device(who: str, specs: Iterable[SpecLike], key: str = TARGET_DEVICE) -> Device | None:
    """Return the device that compile specs name, or None; `who` is for the error about others."""
    values = [spec.value for spec in specs if spec.key == key]
    if len(set(values)) > 1:
        raise DeviceError(who, f"has {len(values)} {key} specs", "leave one")
    return Device.parse(values[0].decode(errors="replace")) if values else None


@frozen
class Assumed:
    """A device that a plugin had to guess: a warning, or an error under `strict`.

    Args:
        device: The guess.
        why: The reason for the guess, and how the user can say the device instead.
    """

    device: Device = field(validator=instance_of(Device))
    why: str = field(validator=instance_of(str))


@frozen
class Draft:
    """A partition whose constants and device are not settled yet.

    `claim_constants` gets it, and its answer decides which values enter the delegate.

    Args:
        name: Unique in its method, such as `cpu_0`.
        method: Method of the program, such as `forward`.
        plugin: The plugin that owns it.
        backend_id: ExecuTorch backend that runs it.
        nodes: Names of its nodes in graph order, getitems included.
        constants: Parameters, buffers and lifted tensors that its nodes read.
        device_types: Device types that its backend runs on, see `Claim`.
        named_data: Its backend stores equal constants once, see `Claim`.
        compile_specs: The backend's settings.
        split_by: The node that kept it from being one with an earlier partition; None for the
            first.
        compiler: ExecuTorch backend that compiles it, if another one than `backend_id`.
        specialises: Its backend compiles for the sizes of the example, see `Claim`.
    """

    name: str
    method: str
    plugin: str
    backend_id: str
    nodes: tuple[str, ...]
    constants: tuple[Constant, ...] = ()
    device_types: tuple[str, ...] = ("cpu",)
    named_data: bool = False
    compile_specs: tuple[CompileSpec, ...] = ()
    split_by: str | None = None
    compiler: str | None = None
    specialises: bool = False

    @property
    def where(self) -> str:
        """Method and name, for messages: `forward/cpu_0`."""
        return f"{self.method}/{self.name}"

    def may_hold(self, constant: Constant) -> bool:
        """Return True if its delegate can hold a constant: nodes outside of it don't write it."""
        return constant.update is None or constant.update in self.nodes


@frozen
class Partition(Draft):
    """The convex set of nodes that becomes one delegate; a draft, settled.

    Args:
        inputs: Values it takes from outside, in the order its nodes read them.
        outputs: Values that other nodes read.
        device: Its device; `compile_specs` has its `target_device` unless it is the CPU, or
            `etdev_device` for a kind of its plugin's own.
        device_source: `pinned`, `derived`, `assumed` or `default`.
        device_note: Why its device was assumed, and why the backend may not run there.
    """

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    device: Device = CPU
    device_source: str = field(default="default", validator=in_(DEVICE_SOURCES))
    device_note: str = ""

    def on(self, device: Device, source: str, note: str = "") -> Partition:
        """Put this partition on a device: one spec that names it, or none on the CPU.

        Raises:
            DeviceError: Its backend doesn't run on a device of that type.
            PluginError: Its plugin gave a spec of a device itself.
        """
        if device.type not in self.device_types:
            what = (
                f"{self.backend_id} does not run on {device}, where {self.where} was put ({source})"
            )
            raise DeviceError(self.plugin, what, f"it runs on {' and '.join(self.device_types)}")
        for spec in self.compile_specs:
            if spec.key in (TARGET_DEVICE, OWN_DEVICE):
                what = f"gives its own {spec.key} compile spec for {self.where}"
                raise PluginError(self.plugin, what, "return the device from resolve_device")
        key = TARGET_DEVICE if device.memory == device else OWN_DEVICE
        # ExecuTorch would plan copies to a target device `cpu`, too, and fail at run time.
        own = () if device.is_cpu else (CompileSpec(key, str(device).encode()),)
        return evolve(
            self,
            device=device,
            device_source=source,
            device_note=note,
            compile_specs=self.compile_specs + own,
        )
