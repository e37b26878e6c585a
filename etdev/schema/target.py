"""The target, where a program will run: this machine, an emulator, or a device that is reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import Attribute, evolve, field, frozen

from etdev.errors import CacheError, EtdevError, close_to
from etdev.schema.caching import size_of
from etdev.schema.converters import frozen_tuple, refusing
from etdev.schema.device import CPU, Device

QEMU, SSH, ADB, LOCAL = "qemu", "ssh", "adb", "local"
# The name of this machine where a target is named.
HERE = "here"
# Models of processor that an emulated aarch64 is verified on: without and with instructions for
# dot products and half precision.
_MODELS = {"aarch64": ("cortex-a53", "cortex-a76")}


def _check_place(_: object, __: Attribute[str], value: str) -> None:
    kind, _, rest = value.partition(":")
    needs_host = kind == SSH and not rest
    if kind not in (QEMU, SSH, ADB, LOCAL) or needs_host or rest.startswith("-"):
        cure = 'write "qemu", "qemu:cortex-a76", "ssh:HOST", "adb", "adb:SERIAL" or "local"'
        raise EtdevError("", f"on is {value!r}", cure)


def _check_triple(_: object, __: Attribute[str], value: str) -> None:
    if not re.fullmatch(r"\w+(-\w+)+", value, re.ASCII):
        raise EtdevError("", f"triple is {value!r}", 'write one such as "aarch64-linux-gnu"')


def _check_memory(_: object, __: Attribute[str], value: str) -> None:
    try:
        size_of(value or 1)
    except CacheError as error:
        raise EtdevError("", f"memory is {value!r}", 'write "512MB"') from error


@refusing(EtdevError, "target")
@frozen
class Target:
    """A place where programs run that is not this machine.

    Args:
        triple: Its processor and system, as compilers name them: `aarch64-linux-gnu`.
        on: How it is reached: `qemu` or `qemu:MODEL` for an emulator on this machine, `ssh:HOST`,
            `adb` or `adb:SERIAL` for a device, `local` for this machine itself.
        executorch: Folder of ExecuTorch's package for it; empty for the wheel of the version that
            lowers, which pip downloads.
        sysroot: Folder with its C library; empty for that of the cross compiler.
        plugins: Plugins that are asked for it; empty for all.
        devices: Devices that it has.
        memory: Bytes that a program may take there, such as `512MB`; empty for no limit.
    """

    triple: str = field(validator=_check_triple)
    on: str = field(default=QEMU, validator=_check_place)
    executorch: str = ""
    sysroot: str = ""
    plugins: tuple[str, ...] = field(default=(), converter=frozen_tuple)
    devices: tuple[Device, ...] = field(default=(CPU,), converter=frozen_tuple)
    memory: str = field(default="", validator=_check_memory)

    @property
    def processor(self) -> str:
        """The family of its processor: `aarch64`, also if the triple has `arm64`."""
        name = self.triple.partition("-")[0]
        return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)

    @property
    def memory_bytes(self) -> int | None:
        """The bytes that a program may take; None without a limit."""
        return size_of(self.memory) if self.memory else None

    @property
    def kind(self) -> str:
        """The kind of way to it: `qemu`, `ssh`, `adb` or `local`."""
        return self.on.partition(":")[0]

    @property
    def models(self) -> tuple[str, ...]:
        """The models of processor that an emulator is asked for; empty for a machine."""
        if self.kind != QEMU:
            return ()
        model = self.on.partition(":")[2]
        return (model,) if model else _MODELS.get(self.processor, ("max",))

    def emulating(self, name: str, model: str) -> Target:
        """Return this target with another model of processor.

        Raises:
            EtdevError: The target is a machine with a processor of its own.
        """
        if self.kind != QEMU:
            cure = f'leave out --cpu, or write on = "qemu" into [targets.{name}]'
            raise EtdevError(name, f"runs on {self.on}, where no processor is emulated", cure)
        return evolve(self, on=f"{QEMU}:{model}")

    @property
    def host(self) -> str:
        """The host that ssh connects to, or the serial number of a device; empty otherwise."""
        return self.on.partition(":")[2] if self.kind in (SSH, ADB) else ""


def target_of(name: str, known: Mapping[str, Any]) -> Target:
    """Return the target of a name, or raise an EtdevError that lists the known ones."""
    if name in known:
        target: Target = known[name]
        return target
    listed = f"the registry has {', '.join(known)}" if known else "the registry has none"
    cure = f'write [targets.{name}] with triple = "aarch64-linux-gnu" into registry.toml'
    raise EtdevError(name, "is not a target", close_to(name, known) or f"{listed}; {cure}")
