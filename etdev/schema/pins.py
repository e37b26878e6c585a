"""Pins, by which a user reserves nodes for one plugin or for portable kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import Attribute, field, frozen

from etdev.errors import PinError
from etdev.schema import globs
from etdev.schema.structuring import structured, table

# The built-in plugin of portable kernels, in pins and in counts.
PORTABLE = "portable"
CRITERIA = ("module", "op", "node")
_WRITE = 'write module = "encoder.layer.0" with plugin = "cpu"'


def _check_glob(_: Pin, attribute: Attribute[Any], value: object) -> None:
    if value is not None and (fault := globs.fault(value)):
        raise PinError("pin", f"{attribute.name} {fault}", _WRITE)


def _check_name(_: Pin, attribute: Attribute[Any], value: object) -> None:
    if value is not attribute.default and (not isinstance(value, str) or not value):
        raise PinError("pin", f"{attribute.name} is {value!r}, which is not a name", _WRITE)


@frozen
class Pin:
    """A rule that only one plugin may take some nodes.

    Criteria are globs, and a node must match all that are given. The first pin that matches a node
    counts. The ops that an op decomposes into are pinned as the op is.

    Args:
        plugin: The plugin that may take the nodes; `portable` leaves them to portable kernels.
        module: Path of a source module that the node is computed in: `encoder.layer.0` is the
            module with all that is in it, `encoder.layer.0.*` what is in its submodules.
        op: Name of the op, `aten._softmax.default`, or of its ATen op in the exported program,
            `aten.softmax.int`.
        node: Name of the node, such as `aten_add_tensor_3`.
        method: The only method that it applies to; None for all.

    Raises:
        PinError: It has no criterion, or one that is not a glob.

    Example:
        Lowerer(pins=[Pin("portable", op="aten._softmax.*")])
    """

    plugin: str = field(validator=_check_name)
    module: str | None = field(default=None, validator=_check_glob)
    op: str | None = field(default=None, validator=_check_glob)
    node: str | None = field(default=None, validator=_check_glob)
    method: str | None = field(default=None, validator=_check_name)

    def __attrs_post_init__(self) -> None:
        if self.module is None and self.op is None and self.node is None:
            raise PinError("pin", f"has none of {', '.join(CRITERIA)}", _WRITE)

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Read what `str` writes: `module=encoder.layer.0:plugin=cpu`."""
        fields: dict[str, str] = {}
        for item in text.split(":"):
            key, equals, value = item.partition("=")
            if not equals or key in fields:
                what = f"can't read {item!r} in {text!r}"
                raise PinError("pin", what, "write module=encoder.layer.0:plugin=cpu")
            fields[key] = value
        return structured(fields, cls, "pin", PinError)

    def matches(self, node: str, ops: Iterable[str], modules: Iterable[str]) -> bool:
        """Return True if a node matches, with all names of its op and all modules around it."""
        return globs.match(self, node, ops, modules)

    def __str__(self) -> str:
        values = ((key, getattr(self, key)) for key in (*CRITERIA, "method", "plugin"))
        return ":".join(f"{key}={value}" for key, value in values if value is not None)


table(Pin, "pin", _WRITE)


def pins(values: object) -> tuple[Pin, ...]:
    """Return pins from a list of pins and mappings, or from None."""
    if isinstance(values, (str, Mapping, Pin)) or not isinstance(values, Iterable | None):
        raise PinError("pins", f"{values!r} is not a list", "write pins=[Pin(...)]")
    return structured(tuple(values or ()), tuple[Pin, ...], "pins", PinError)
