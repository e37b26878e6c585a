"""Options: how a plugin is made from what the registry says of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import attrs
import cattrs

from etdev.errors import PluginError, first_line


def make(title: str, target: Any, options: Mapping[str, Any]) -> Any:
    """The object an entry point stands for; a class is made with the registry's options."""
    if inspect.isclass(target):
        return call(title, target, options)
    if options:
        raise PluginError(title, f"takes no options, got {', '.join(options)}", "remove them")
    return target


def call(title: str, target: Any, options: Mapping[str, Any]) -> Any:
    """What a class or a function makes of the registry's options."""
    try:
        if attrs.has(target):
            _refuse_text_for_lists(title, target, options)
            return _options_converter().structure(dict(options), target)
        return target(**options)
    except cattrs.BaseValidationError as error:
        problems = "; ".join(cattrs.transform_error(error, "options", _problem))
        raise _bad(title, target, problems) from error
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            title, f"could not be made: {first_line(error)}", "check its options"
        ) from error


def _bad(title: str, target: Any, problems: str) -> PluginError:
    known = ", ".join(field.name for field in attrs.fields(target) if field.init) or "none"
    return PluginError(title, f"bad options: {problems}", f"its options are {known}")


def _refuse_text_for_lists(title: str, target: Any, options: Mapping[str, Any]) -> None:
    """`precisions = "fp32"` would be taken for four precisions."""
    for field in attrs.fields(target):
        value = options.get(field.name)
        if isinstance(value, str) and str(field.type).startswith(("tuple", "list", "set")):
            raise _bad(title, target, f"{field.name} is {value!r}, write [{value!r}]")


def _options_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (bool, int, float, str):
        converter.register_structure_hook(kind, _exactly)
    return converter


def _exactly(value: Any, kind: type) -> Any:
    """No conversion: bool("false") would be True."""
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(f"{value!r} is no {kind.__name__}")


def _problem(error: BaseException, kind: type[Any] | None) -> str:
    """What is wrong with one option, in the validator's own words: they hold the value."""
    if type(error) in (TypeError, ValueError) and error.args:
        return str(error.args[0])
    return cattrs.v.format_exception(error, kind)
