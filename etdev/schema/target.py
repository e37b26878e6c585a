"""The target, where a program will run: another processor, reached by an emulator or over ssh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import Attribute, field, frozen

from etdev.errors import EtdevError, close_to
from etdev.schema.converters import frozen_tuple, refusing

QEMU, SSH = "qemu", "ssh"
# Models of processor that an emulated aarch64 is verified on: without and with instructions for
# dot products and half precision.
_MODELS = {"aarch64": ("cortex-a53", "cortex-a76")}


def _check_place(_: object, __: Attribute[str], value: str) -> None:
    kind, _, rest = value.partition(":")
    if kind not in (QEMU, SSH) or (kind == SSH and (not rest or rest.startswith("-"))):
        raise EtdevError("", f"on is {value!r}", 'write "qemu", "qemu:cortex-a76" or "ssh:HOST"')


def _check_triple(_: object, __: Attribute[str], value: str) -> None:
    if not re.fullmatch(r"\w+(-\w+)+", value, re.ASCII):
        raise EtdevError("", f"triple is {value!r}", 'write one such as "aarch64-linux-gnu"')


@refusing(EtdevError, "target")
@frozen
class Target:
    """A place where programs run that is not this machine.

    Args:
        triple: Its processor and system, as compilers name them: `aarch64-linux-gnu`.
        on: How it is reached: `qemu` or `qemu:MODEL` for an emulator on this machine, `ssh:HOST`.
        executorch: Folder of ExecuTorch's package for it; empty for the wheel of the version that
            lowers, which pip downloads.
        sysroot: Folder with its C library; empty for that of the cross compiler.
        plugins: Plugins that are asked for it; empty for all.
    """

    triple: str = field(validator=_check_triple)
    on: str = field(default=QEMU, validator=_check_place)
    executorch: str = ""
    sysroot: str = ""
    plugins: tuple[str, ...] = field(default=(), converter=frozen_tuple)

    @property
    def processor(self) -> str:
        """The family of its processor: `aarch64`."""
        return self.triple.partition("-")[0]

    @property
    def models(self) -> tuple[str, ...]:
        """The models of processor that an emulator is asked for; empty for a machine."""
        kind, _, model = self.on.partition(":")
        if kind != QEMU:
            return ()
        return (model,) if model else _MODELS.get(self.processor, ("max",))

    @property
    def host(self) -> str:
        """The host that ssh connects to; empty for an emulator."""
        kind, _, host = self.on.partition(":")
        return host if kind == SSH else ""


def target_of(name: str, known: Mapping[str, Any]) -> Target:
    """Return the target of a name, or raise an EtdevError that lists the known ones."""
    if name in known:
        target: Target = known[name]
        return target
    listed = f"the registry has {', '.join(known)}" if known else "the registry has none"
    cure = f'write [targets.{name}] with triple = "aarch64-linux-gnu" into registry.toml'
    raise EtdevError(name, "is not a target", close_to(name, known) or f"{listed}; {cure}")
