"""The line of the user's code and the call that a node comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from torch.fx import Node

from etdev.graph.nodes import op_name
from etdev.graph.ops import ORDERED

_TORCH = re.compile(r"site-packages[/\\](torch|executorch)[/\\]")
# torch numbers generated code through the process, so that its names are not the same twice.
_FRAME = re.compile(r'File "(?!<eval_with_key>)(?P<file>[^"]+)", line (?P<line>[0-9]+)')
# The key of `node.meta` for the Python calls that a node comes from, by which some backends group
# nodes; and its value for a node that comes from no call and no module.
CALLS = "source_fn_stack"
NO_CALL = (("", ""),)


def where(node: Node) -> str:
    """Return the innermost line outside of torch, as ` at net.py:12`; empty if unknown."""
    line = line_of(node)
    return f" at {line}" if line else ""


def ops_with_lines(nodes: Iterable[Node]) -> str:
    """Return the ops of nodes and their lines, each once: `aten.add.Tensor at net.py:12, ...`."""
    return ", ".join(dict.fromkeys(f"{_called(node)}{where(node)}" for node in nodes))


def _called(node: Node) -> object:
    """Return the op that a node calls, also through a call that keeps the order of effects."""
    return node.args[1] if node.target is ORDERED else op_name(node)


def line_of(node: Node) -> str:
    """Return the innermost line outside of torch, as `net.py:12`; empty if unknown."""
    return _line(node.meta.get("stack_trace") or "")


# The pieces of an op, and ops of one line, share a stack.
@lru_cache(maxsize=1024)
def _line(stack: str) -> str:
    frames = list(_FRAME.finditer(stack))
    # Frames of torch's own modules count if there are no others.
    own = [frame for frame in frames if not _TORCH.search(frame["file"])]
    for frame in reversed(own or frames):
        return f"{Path(frame['file']).name}:{frame['line']}"
    return ""
