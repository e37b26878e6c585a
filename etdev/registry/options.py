"""Plugins made with the options of the registry."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import attrs
import cattrs

from etdev.errors import PluginError, close_to, first_line
from etdev.schema.structuring import Problem, problems, strict_converter


def make_plugin(title: str, target: Any, options: Mapping[str, Any]) -> Any:
    """Make the object that an entry point names; a class is called with the registry's options.

    Args:
        title: Name and distribution, for messages.
        target: The object that the entry point names.
        options: The registry's.

    Raises:
        PluginError: It takes no options, other options, or failed.
    """
    if inspect.isclass(target):
        return call_with(title, target, options)
    if options:
        raise PluginError(title, f"takes no options, got {', '.join(options)}", "remove them")
    return target


def call_with(title: str, target: Any, options: Mapping[str, Any]) -> Any:
    """Call a class or a function with the registry's options, checked if it is an attrs class."""
    # A copy: the registry may make another plugin later.
    own = copy.deepcopy(dict(options))
    try:
        if attrs.has(target):
            return strict_converter().structure(own, target)
        return target(**own)
    except cattrs.BaseValidationError as error:
        known = ", ".join(field.name for field in attrs.fields(target) if field.init) or "none"
        what = "; ".join(map(_text, problems(error)))
        raise PluginError(title, f"bad options: {what}", f"its options are {known}") from error
    except (PluginError, KeyboardInterrupt):
        raise
    except BaseException as error:
        cure = _unknown(target, options) or "check its options"
        # Newer Pythons append what the cure says.
        what, _, _ = first_line(error).partition(". Did you mean ")
        raise PluginError(title, f"could not be made: {what}", cure) from error


def _unknown(target: Any, options: Mapping[str, Any]) -> str:
    """Return a better name for an option that a class or function doesn't take."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return ""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return ""
    known = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    cures = [close_to(option, known) for option in options if option not in known]
    return f"{cures[0]} its options are {', '.join(known)}".strip() if cures and known else ""


def _text(problem: Problem) -> str:
    """Return a problem for the middle of a sentence; the text of a validator names the option."""
    what = f"{problem.key} {problem.what}" if problem.key else problem.what
    return f"{what}, {problem.cure}" if problem.cure else what
