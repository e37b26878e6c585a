"""Compile specs, the settings for a backend's compiler and its runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from attrs import Attribute, field, frozen

from etdev.errors import ClaimError
from etdev.schema.converters import frozen_tuple, one_line


def _bytes(instance: CompileSpec, attribute: Attribute[bytes], value: Any) -> None:
    if not isinstance(value, bytes):
        what = f"the compile spec {instance.key!r} is {value!r}"
        raise ClaimError("claim", what, 'give bytes, such as b"1"')


@frozen
class CompileSpec:
    """One `key: bytes` pair handed to a backend's compiler and to its runtime.

    Has the content of ExecuTorch's CompileSpec, is frozen, and needs no import of ExecuTorch.
    """

    key: str = field(validator=one_line)
    value: bytes = field(validator=_bytes)


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
    return tuple(_compile_spec(item) for item in frozen_tuple(value))


def _compile_spec(item: Any) -> CompileSpec:
    if isinstance(item, CompileSpec):
        return item
    try:
        # Through memoryview, since bytes(3) is three zeros.
        return CompileSpec(item.key, bytes(memoryview(item.value)))
    except (AttributeError, TypeError) as error:
        what = f"{item!r} is not a compile spec"
        raise ClaimError("claim", what, "give a mapping of key to bytes") from error
