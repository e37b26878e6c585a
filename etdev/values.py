"""Converters and validators that the value classes share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import Attribute, field, frozen, validators

from etdev.errors import ClaimError


def node_name(value: object) -> str:
    """The name of a graph node, given as its name or as the torch.fx node itself."""
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str) or not name:
        raise ClaimError("claim", f"{value!r} is no node", "give torch.fx nodes or their names")
    return name


def node_names(value: object) -> tuple[str, ...]:
    """Names of several nodes, in the order given, each once.

    Named, since bare `tuple` would take the string "add" for three nodes.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ClaimError("claim", f"{value!r} is no sequence of nodes", "give a list of nodes")
    return tuple(dict.fromkeys(node_name(item) for item in value))


def frozen_tuple(value: object) -> tuple[Any, ...]:
    """Any iterable but text, as a tuple."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ClaimError("claim", f"{value!r} is no sequence", "give a list or a tuple")
    return tuple(value)


def each(kind: type) -> Any:
    """Validator: a tuple whose members are all of one class."""
    return validators.deep_iterable(validators.instance_of(kind))


def not_empty(instance: object, attribute: Attribute[Any], value: Any) -> None:
    """Validator: at least one item or character."""
    if not value:
        name = f"{type(instance).__name__}.{attribute.name}"
        raise ClaimError("claim", f"{name} is empty", "leave the whole claim out instead")


@frozen
class CompileSpec:
    """One `key: bytes` pair handed to a backend's compiler and to its runtime.

    The content of ExecuTorch's CompileSpec, frozen, and without importing ExecuTorch.
    """

    key: str = field(validator=[validators.instance_of(str), not_empty])
    value: bytes = field(validator=validators.instance_of(bytes))


def compile_specs(value: object) -> tuple[CompileSpec, ...]:
    """ExecuTorch's compile specs, ours, or a mapping of key to bytes, as ours."""
    if isinstance(value, Mapping):
        return tuple(CompileSpec(key, data) for key, data in value.items())
    return tuple(_compile_spec(item) for item in frozen_tuple(value))


def _compile_spec(item: Any) -> CompileSpec:
    if isinstance(item, CompileSpec):
        return item
    try:
        # By way of memoryview, since bytes(3) is three zeros.
        return CompileSpec(item.key, bytes(memoryview(item.value)))
    except (AttributeError, TypeError) as error:
        raise ClaimError(
            "claim", f"{item!r} is no compile spec", "give a mapping of key to bytes"
        ) from error
