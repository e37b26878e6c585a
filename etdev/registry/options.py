"""Options: how a plugin is made with what the registry says about it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import attrs
import cattrs

from etdev.errors import PluginError, first_line
from etdev.registry.names import close_to
from etdev.schema.structuring import Problem, problems, strict_converter


def make_plugin(title: str, target: Any, options: Mapping[str, Any]) -> Any:
    """Make the object that an entry point names; a class is called with the registry's options.

    Args:
        title: Who offers it, for messages.
        target: What the entry point names.
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
    """Call a class or a function with the registry's options; attrs classes have them checked."""
    # The registry's, which may make another plugin later.
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
    """What to write instead of an option that a class or function doesn't take."""
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
    """A problem in the middle of a sentence; a validator's own words hold the option already."""
    what = f"{problem.key} {problem.what}" if problem.key else problem.what
    return f"{what}, {problem.cure}" if problem.cure else what
