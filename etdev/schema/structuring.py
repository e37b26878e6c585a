"""Conversion of plain data, from TOML, JSON or keyword arguments, to frozen values by cattrs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import attrs
import cattrs
from cattrs.cols import is_mapping, list_structure_factory, mapping_structure_factory
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError
from cattrs.preconf.json import JsonConverter, make_converter

from etdev.errors import EtdevError, close_to, shown
from etdev.schema.device import Device

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]

_SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_LISTS = (list, tuple, set, frozenset)
_CHOICES: tuple[Any, ...] = (Literal,)


def strict_converter(*, forbid_extra_keys: bool = True) -> JsonConverter:
    """Return a converter that refuses unknown keys and values of another kind than the field's."""
    converter = make_converter(forbid_extra_keys=forbid_extra_keys)
    for kind in _SCALARS:
        converter.register_structure_hook(kind, _exactly)
    converter.register_structure_hook(Device, lambda value, _: Device.parse(value))
    converter.register_unstructure_hook(Device, str)
    converter.register_structure_hook_func(lambda kind: get_origin(kind) in _CHOICES, _one_of)
    converter.register_structure_hook_factory(_is_list, _list_hook)
    converter.register_structure_hook_factory(
        is_mapping, lambda kind, own: _of_table(mapping_structure_factory(kind, own))
    )
    converter.register_structure_hook_factory(
        attrs.has, lambda kind, own: _of_table(own.gen_structure_attrs_fromdict(kind), kind)
    )
    # A plan is a mapping of its methods, too.
    converter.register_unstructure_hook_factory(attrs.has, converter.gen_unstructure_attrs_fromdict)
    return converter


def _refused(value: object, cure: str) -> EtdevError:
    return EtdevError("", f"is {shown(value)}", cure)


def _exactly(value: Any, kind: type) -> Any:
    """Return a value of that kind, without conversion: bool("false") would be True."""
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise _refused(value, f"it must be {_SCALARS[kind]}")


def _one_of(value: Any, kind: Any) -> Any:
    # 8.0 equals 8, and True equals 1.
    if not any(type(value) is type(choice) and value == choice for choice in get_args(kind)):
        raise _refused(value, f"it must be one of {', '.join(map(repr, get_args(kind)))}")
    return value


def _is_list(kind: Any) -> bool:
    """Return True if a type is a list of any length, unlike `tuple[int, str]`."""
    origin, members = get_origin(kind) or kind, get_args(kind)
    return origin in _LISTS and not (origin is tuple and members and members[-1] is not ...)


def _list_hook(kind: Any, converter: cattrs.Converter) -> Hook:
    make = get_origin(kind) or kind
    structure = list_structure_factory(kind, converter)

    def hook(value: Any, _: Any) -> Any:
        # `precisions = "fp32"` would be taken for four precisions.
        if not isinstance(value, _LISTS):
            raise _refused(value, "it must be a list")
        return make(structure(value, kind))

    return hook


def _of_table(structure: Hook, kind: type | None = None) -> Hook:
    """Return a hook that refuses other values than tables, and returns those of a class."""

    def hook(value: Any, target: Any) -> Any:
        if kind and isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise _refused(value, "it must be a table")
        return structure(value, target)

    return hook


# They convert devices to text and bytes to base 85. A document may have keys of a later version.
CONVERTER = strict_converter(forbid_extra_keys=False)
STRICT = strict_converter()
# The errors that they raise about a value.
REFUSALS = (cattrs.BaseValidationError, ForbiddenExtraKeysError, EtdevError)


def structured(value: object, kind: type[T], who: str, error: type[EtdevError]) -> T:
    """Convert the argument `who`, such as `pins=[{"op": ...}]`, to a type such as `list[Pin]`.

    Raises:
        EtdevError: An error of that class, with the first problem: `pins[1].op: is 3; …`.
    """
    try:
        return STRICT.structure(value, kind)
    except REFUSALS as refusal:
        first = next(problems(refusal, who))
    raise error(first.who, first.what, first.cure)


def clause(problem: EtdevError) -> str:
    """Return a problem for the middle of a sentence; the text of a validator names the field."""
    return ", ".join(filter(None, (f"{problem.who} {problem.what}".strip(), problem.cure)))


def problems(refusal: Exception, path: str = "") -> Iterator[EtdevError]:
    """List what a converter refused, in the order of the fields.

    `who` is the path of a value as TOML writes it, such as `pin[1].op`; it begins with `path`.
    """
    if isinstance(refusal, (cattrs.ClassValidationError, cattrs.IterableValidationError)):
        noted, others = refusal.group_exceptions()
        for inner, note in noted:
            step = note.name if isinstance(note, AttributeValidationNote) else note.index
            step = f"[{step}]" if isinstance(step, int) else f".{step}"
            yield from problems(inner, f"{path}{step}".removeprefix("."))
        for inner in others:
            yield from problems(inner, path)
    elif isinstance(refusal, ForbiddenExtraKeysError):
        valid = [field.name for field in attrs.fields(refusal.cl) if field.init]
        for key in sorted(refusal.extra_fields):
            cure = close_to(key, valid) or f"valid are {', '.join(valid)}"
            yield EtdevError(f"{path}.{key}".removeprefix("."), "is an unknown key", cure)
    elif isinstance(refusal, EtdevError):
        yield EtdevError(path, refusal.what, refusal.cure)
    elif type(refusal) in (TypeError, ValueError) and refusal.args:
        # The words of a validator of attrs, which hold field and value.
        yield EtdevError(path, str(refusal.args[0]))
    else:
        yield EtdevError(path, cattrs.v.format_exception(refusal, None))
