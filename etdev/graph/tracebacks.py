"""The traceback of an error in a pass, and the node that the pass was at."""

from __future__ import annotations

import ast
import inspect
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType

from torch.fx import Node

from etdev.graph.nodes import is_own, line_of, op_name


def place_of(error: BaseException) -> str:
    """Return the node that a pass failed at, as ` in aten.add.Tensor at net.py:12`, or nothing.

    An op that a pass or a library has made gets the line of the nearest value before it.
    """
    node = failing_node(error)
    if node is None:
        return ""
    before = {node: None}
    for each in (queue := [node]):
        if is_own(each):
            return f" in {op_name(node)} at {line_of(each)}"
        queue += [source for source in each.all_input_nodes if source not in before]
        before |= dict.fromkeys(each.all_input_nodes)
    return f" in {op_name(node)}"


def failing_node(error: BaseException) -> Node | None:
    """Return the computing node that an error is about: the innermost call's, if it has one.

    It is an argument of a function, or what its loop has come to.
    """
    if error.__cause__ and (found := failing_node(error.__cause__)):
        return found
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        for name in _current(frame.f_code, line):
            value = frame.f_locals.get(name)
            if isinstance(value, Node) and value.op == "call_function":
                return value
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
