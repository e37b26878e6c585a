"""Options: how a plugin is made from what the registry says of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import attrs
import cattrs

from etdev.errors import PluginError, first_line
from etdev.schema.structuring import Problem, problems, strict_converter


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
            return strict_converter().structure(dict(options), target)
        return target(**options)
    except cattrs.BaseValidationError as error:
        known = ", ".join(field.name for field in attrs.fields(target) if field.init) or "none"
        what = "; ".join(map(_text, problems(error)))
        raise PluginError(title, f"bad options: {what}", f"its options are {known}") from error
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            title, f"could not be made: {first_line(error)}", "check its options"
        ) from error


def _text(problem: Problem) -> str:
    """A problem in the middle of a sentence; a validator's own words hold the option already."""
    what = f"{problem.key} {problem.what}" if problem.key else problem.what
    return f"{what}, {problem.cure}" if problem.cure else what
