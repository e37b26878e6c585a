"""Pins, by which a user reserves nodes for one plugin or for portable kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from attrs import field, frozen
from attrs.validators import and_, instance_of, min_len, optional

from etdev.errors import PinError, shown
from etdev.schema.converters import refusing
from etdev.schema.structuring import structured

# The built-in plugin of portable kernels, in pins and in counts.
PORTABLE = "portable"
CRITERIA = ("module", "op", "node")
_TEXT = and_(instance_of(str), min_len(1))


@refusing(PinError, "pin")
@frozen
class Pin:
    """A rule that only one plugin may take some nodes.

    Criteria are globs, whose `*` spans dots, and a node must match all that are given. The first
    pin that matches a node counts. The ops that an op decomposes into are pinned as the op is.

    Args:
        plugin: The plugin that may take the nodes; `portable` leaves them to portable kernels.
        module: Path of a source module that the node is computed in: `encoder.layer.0` is the
            module with all that is in it, `encoder.layer.0.*` what is in its submodules.
        op: Name of the op, `aten._softmax.default`, or of its ATen op in the exported program,
            `aten.softmax.int`.
        node: Name of the node, such as `aten_add_tensor_3`.
        method: The only method that it applies to; None for all.

    Raises:
        PinError: It has no criterion, or a wrong one.

    Example:
        Lowerer(pins=[Pin("portable", op="aten._softmax.*")])
    """

    plugin: str = field(validator=_TEXT)
    module: str | None = field(default=None, validator=optional(_TEXT))
    op: str | None = field(default=None, validator=optional(_TEXT))
    node: str | None = field(default=None, validator=optional(_TEXT))
    method: str | None = field(default=None, validator=optional(_TEXT))

    def __attrs_post_init__(self) -> None:
        if self.module is None and self.op is None and self.node is None:
            cure = 'write module = "encoder.layer.0" with plugin = "cpu"'
            raise PinError("pin", f"has none of {', '.join(CRITERIA)}", cure)

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Read what `str` writes: `module=encoder.layer.0:plugin=cpu`."""
        try:
            return cls(**dict(item.partition("=")[::2] for item in text.split(":")))
        except PinError as error:
            cure = "write module=encoder.layer.0:plugin=cpu"
            raise PinError("pin", f"can't read {text!r}", cure) from error

    def __str__(self) -> str:
        values = ((key, getattr(self, key)) for key in (*CRITERIA, "method", "plugin"))
        return ":".join(f"{key}={value}" for key, value in values if value is not None)


def pins(values: object) -> tuple[Pin, ...]:
    """Return pins from a list of pins and mappings, or from None."""
    if isinstance(values, (str, Mapping, Pin)) or not isinstance(values, Iterable | None):
        raise PinError("pins", f"{shown(values)} is not a list", "write pins=[Pin(...)]")
    return structured(tuple(values or ()), tuple[Pin, ...], "pins", PinError)


def matches(criteria: Any, node: str, ops: Iterable[str], modules: Iterable[str]) -> bool:
    """Return True if a node matches the globs of a pin or a query, as far as they are given.

    It is matched by all names of its op and all modules around it.
    """
    globs = ((criteria.node, [node]), (criteria.op, ops), (criteria.module, modules))
    return all(
        glob is None or any(fnmatchcase(name, glob) for name in names) for glob, names in globs
    )
