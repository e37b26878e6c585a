"""The traceback of a pass, and the node that the pass is at."""

from __future__ import annotations

import ast
import inspect
import textwrap
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import CodeType, FrameType

from torch.fx import Node

from etdev.graph.nodes import op_name, where


def place_of(error: BaseException) -> str:
    """Return the node that a pass failed at, as ` in aten.add.Tensor at net.py:12`, or nothing."""
    return _named(_failing(error))


def current_place() -> str:
    """Return the node that a pass is at, in the words of `place_of`."""
    return _named(_node_in(traceback.walk_stack(None)))


def _named(node: Node | None) -> str:
    return f" in {op_name(node)}{where(node)}" if node else ""


def _failing(error: BaseException) -> Node | None:
    cause = error.__cause__ and _failing(error.__cause__)
    return cause or _node_in(reversed([*traceback.walk_tb(error.__traceback__)]))


def _node_in(frames: Iterable[tuple[FrameType, int]]) -> Node | None:
    """Return the computing node that the first of some frames with one is at.

    It is an argument of the function, or what its loop has come to.
    """
    for frame, line in frames:
        known = {n: v for n, v in frame.f_locals.items() if isinstance(v, Node)}
        # Reading the source of a function takes long.
        for name in _current(frame.f_code, line) if known else ():
            if name in known and known[name].op == "call_function":
                return known[name]
    return None


def _current(code: CodeType, line: int) -> Iterator[str]:
    """Yield the names of a function's arguments and of its loops around a line, innermost first."""
    with suppress(OSError, SyntaxError):
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        for loop in reversed([each for each in ast.walk(tree) if isinstance(each, ast.For)]):
            end = loop.body[-1].end_lineno or 0
            if loop.body[0].lineno <= line - first + 1 <= end:
                yield from (each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name))
    yield from code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
