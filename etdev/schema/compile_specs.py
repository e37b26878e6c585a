"""Compile specs, the settings for a backend's compiler and its runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import field, frozen
from attrs.validators import instance_of

from etdev.schema.converters import frozen_tuple, one_line


@frozen
class CompileSpec:
    """One `key: bytes` pair handed to a backend's compiler and to its runtime.

    Has the content of ExecuTorch's CompileSpec, is frozen, and needs no import of ExecuTorch.
    """

    key: str = field(validator=one_line)
    value: bytes = field(validator=instance_of(bytes))


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
