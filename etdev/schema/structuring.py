"""Conversion of plain data, from TOML, JSON or keyword arguments, to frozen values by cattrs.

A class that users may write as a table is registered with `table`. The faults of a table are
returned as problems, each with the path of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import attrs
import cattrs
from attrs import Attribute, AttrsInstance, frozen
from cattrs.cols import is_mapping, list_structure_factory, mapping_structure_factory
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override
from cattrs.preconf.json import JsonConverter, make_converter

from etdev.errors import EtdevError, close_to
from etdev.schema.device import Device

T = TypeVar("T")
A = TypeVar("A", bound=AttrsInstance)

_SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_LISTS = (list, tuple, set, frozenset)
# Characters of a value that a message shows.
_MOST = 600


class FieldName(str):
    """A step of a path: the field of a class. Other steps are positions and keys of collections."""

    __slots__ = ()


Path = tuple[FieldName | str | int, ...]


@frozen
class Problem:
    """A fault of one value of a table: the steps to it, what to read after its name, the advice."""

    path: Path
    what: str
    cure: str = ""

    @property
    def key(self) -> str:
        """The path as TOML writes it, positions in brackets: `pin[1].op`."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return "".join(steps).removeprefix(".")

    def error(self, who: str, kind: type[EtdevError]) -> EtdevError:
        """Return the error for an argument of this name: `pins[1]: op is 3; …`."""
        path, what = self.path, self.what
        if path and isinstance(path[-1], FieldName):
            path, what = path[:-1], f"{path[-1]} {what}"
        return kind(who + "".join(f"[{step!r}]" for step in path), what, self.cure)


def strict_converter(*, forbid_extra_keys: bool = True) -> JsonConverter:
    """Return a converter that refuses unknown keys and values of another kind than the field's."""
    converter = make_converter(forbid_extra_keys=forbid_extra_keys)
    for kind in _SCALARS:
        converter.register_structure_hook(kind, _exactly)
    converter.register_structure_hook(Device, lambda value, _: Device.parse(value))
    converter.register_unstructure_hook(Device, str)
    converter.register_structure_hook_factory(_is_list, _list_hook)
    converter.register_structure_hook_factory(is_mapping, _mapping_hook)
    converter.register_structure_hook_func(_is_choice, _one_of)
    return converter


def _refused(value: object, cure: str) -> EtdevError:
    return EtdevError("", f"is {value!r}", cure)


def _exactly(value: Any, kind: type) -> Any:
    """Return a value of that kind, without conversion: bool("false") would be True."""
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise _refused(value, f"it must be {_SCALARS[kind]}")


def _is_choice(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _one_of(value: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if any(type(value) is type(choice) and value == choice for choice in choices):
        return value
    raise _refused(value, f"it must be one of {', '.join(map(repr, choices))}")


def _is_list(kind: Any) -> bool:
    """Return True if a type is a list of any length, unlike `tuple[int, str]`."""
    origin, members = get_origin(kind) or kind, get_args(kind)
    return origin in _LISTS and not (origin is tuple and members and members[-1] is not ...)


def _list_hook(kind: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    make = get_origin(kind) or kind
    structure = list_structure_factory(kind, converter)

    def hook(value: Any, _: Any) -> Any:
        if isinstance(value, str):
            # `precisions = "fp32"` would be taken for four precisions.
            raise _refused(value, f'write ["{value}"]')
        if isinstance(value, Mapping) or not isinstance(value, Iterable):
            raise _refused(value, "it must be a list")
        return make(structure(value, kind))

    return hook


def _mapping_hook(kind: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    structure = mapping_structure_factory(kind, converter)

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _refused(value, "it must be a table")
        return structure(value, kind)

    return hook


# It converts devices to text and bytes to base 64. Only tables refuse keys that they don't know.
CONVERTER = strict_converter(forbid_extra_keys=False)
# The errors that it raises about a value.
REFUSALS = (cattrs.BaseValidationError, ForbiddenExtraKeysError, EtdevError)


def table(kind: type[A], noun: str, cure: str, *, empty: bool = True) -> None:
    """Register a class that users may write as a table of its fields.

    Args:
        kind: An attrs class; its own converters and validators check each field.
        noun: Its name in `is 3, which is not a pin`.
        cure: The advice for another value, or for a table that lacks a key.
        empty: Accept a table without keys.
    """
    fields = attrs.fields(kind)
    names = [field.name for field in fields]
    required = [field.name for field in fields if field.default is attrs.NOTHING]
    own = {
        field.name: override(struct_hook=_checked(field))
        for field in fields
        if field.converter or field.validator
    }
    structure = make_dict_structure_fn(kind, CONVERTER, **own)  # type: ignore[arg-type]

    def hook(value: Any, _: Any) -> A:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping) or not (value or empty):
            raise EtdevError("", f"is {value!r}, which is not a {noun}", cure)
        if unknown := [key for key in value if key not in names]:
            raise ForbiddenExtraKeysError(None, kind, set(map(str, unknown)))
        for name in required:
            if name not in value:
                raise EtdevError("", f"names no {name}", cure)
        return structure(value, kind)

    CONVERTER.register_structure_hook(kind, hook)


def _checked(field: Attribute[Any]) -> Callable[[Any, Any], Any]:
    """Convert and check a field as its class does, so that an error has the path of the field."""

    def hook(value: Any, _: Any) -> Any:
        try:
            if callable(field.converter):
                value = field.converter(value)
            if field.validator:
                field.validator(None, field, value)
        except EtdevError as error:
            # Our validators name the field themselves, and the path does too.
            what = error.what.removeprefix(f"{field.name} ")
            raise EtdevError("", what, error.cure) from error
        return value

    return hook


def structured(value: object, kind: type[T], who: str, error: type[EtdevError]) -> T:
    """Convert the argument `who`, such as `pins=[{"op": ...}]`, to a type such as `list[Pin]`.

    Raises:
        EtdevError: An error of that class, with the first problem.
    """
    try:
        return CONVERTER.structure(value, kind)
    except REFUSALS as refusal:
        first = next(problems(refusal))
    raise first.error(who, error)


def problems(refusal: Exception) -> Iterator[Problem]:
    """List what a converter refused, in the order of the fields."""
    for path, leaf in _leaves(refusal, ()):
        if isinstance(leaf, ForbiddenExtraKeysError):
            valid = [field.name for field in attrs.fields(leaf.cl) if field.init]
            for key in sorted(leaf.extra_fields):
                cure = close_to(key, valid) or f"valid are {', '.join(valid)}"
                yield Problem((*path, FieldName(key)), "is an unknown key", cure)
        elif isinstance(leaf, EtdevError):
            yield Problem(path, _short(leaf.what), _short(leaf.cure))
        elif type(leaf) in (TypeError, ValueError) and leaf.args:
            # The words of a validator of attrs, which hold field and value.
            yield Problem(path, _short(str(leaf.args[0])))
        else:
            yield Problem(path, cattrs.v.format_exception(leaf, None))


def _short(text: str) -> str:
    """Return a text, without its middle if it is very long."""
    return text if len(text) <= _MOST else f"{text[: _MOST // 2]} … {text[-_MOST // 2 :]}"


def _leaves(refusal: Exception, path: Path) -> Iterator[tuple[Path, Exception]]:
    """Yield the errors in a tree of cattrs' groups, with their paths."""
    if not isinstance(refusal, (cattrs.ClassValidationError, cattrs.IterableValidationError)):
        yield path, refusal
        return
    noted, others = refusal.group_exceptions()
    for inner, note in noted:
        step = FieldName(note.name) if isinstance(note, AttributeValidationNote) else note.index
        yield from _leaves(inner, (*path, step))
    for inner in others:
        yield from _leaves(inner, path)
