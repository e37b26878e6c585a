"""Modes of torch: code that every op of this thread goes through, while one is on a stack.

torch has no documented way to look at its two stacks of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from attrs import frozen
from torch.overrides import _get_current_function_mode_stack
from torch.overrides import _pop_mode as _pop_function_mode
from torch.overrides import _push_mode as _push_function_mode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode, _push_mode


@frozen
class Stack:
    """One of the stacks.

    Args:
        modes: What is on it, the innermost last.
        push: Puts a mode on it.
        pop: Takes one off it.
    """

    modes: Callable[[], list[Any]]
    push: Callable[[Any], object]
    pop: Callable[[Any], object]

    def put(self, modes: list[Any]) -> None:
        """Have these modes on it and no others."""
        while (now := self.modes()) != modes[: len(now)]:
            # A mode may have more to undo than its place on the stack.
            with suppress(Exception):
                now[-1].__exit__(None, None, None)
            if len(self.modes()) >= len(now):
                self.pop(now[-1])
        for mode in modes[len(now) :]:
            self.push(mode)


DISPATCH = Stack(
    _get_current_dispatch_mode_stack,
    _push_mode,
    # Some kinds of mode have a place of their own.
    lambda mode: _pop_mode(getattr(mode, "_mode_key", None)),
)
FUNCTION = Stack(
    _get_current_function_mode_stack,
    _push_function_mode,
    lambda _: _pop_function_mode(),  # type: ignore[no-untyped-call]
)
