"""Sources: the line of the user's code that a node comes from, and the call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from torch.fx import Node

from etdev.graph.nodes import op_name
from etdev.graph.ops import ORDERED

_TORCH = re.compile(r"site-packages[/\\](torch|executorch)[/\\]")
# What torch generates is numbered through the process, so that its names are not the same twice.
_FRAME = re.compile(r'File "(?!<eval_with_key>)(?P<file>[^"]+)", line (?P<line>[0-9]+)')
# The key of `node.meta` for the calls in Python that a node comes from, by which some backends put
# nodes together; and what says that it comes from none, and from no module either.
CALLS = "source_fn_stack"
NO_CALL = (("", ""),)


def where(node: Node) -> str:
    """The innermost line that is not torch's own, as ` at net.py:12`; empty if it isn't known."""
    line = line_of(node)
    return f" at {line}" if line else ""


def ops_with_lines(nodes: Iterable[Node]) -> str:
    """The ops of nodes and their lines, each once: `aten.add.Tensor at net.py:12, ...`."""
    return ", ".join(dict.fromkeys(f"{_called(node)}{where(node)}" for node in nodes))


def _called(node: Node) -> object:
    """The op that a node calls, in its order or anyhow."""
    return node.args[1] if node.target is ORDERED else op_name(node)


def line_of(node: Node) -> str:
    """The innermost line that is not torch's own, as `net.py:12`; empty if it isn't known."""
    return _line(node.meta.get("stack_trace") or "")


# The pieces of an op, and ops of one line, share a stack.
@lru_cache(maxsize=1024)
def _line(stack: str) -> str:
    frames = list(_FRAME.finditer(stack))
    # Those of torch's own modules, if there are no others.
    own = [frame for frame in frames if not _TORCH.search(frame["file"])]
    for frame in reversed(own or frames):
        return f"{Path(frame['file']).name}:{frame['line']}"
    return ""
