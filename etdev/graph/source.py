"""Source lines: the line of the user's code that a node comes from."""

from __future__ import annotations

import re
from pathlib import Path

from torch.fx import Node

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>[0-9]+)')


def where(node: Node) -> str:
    """The innermost line of the user's code, as ` at net.py:12`; empty if it isn't known."""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    # Those of torch's own modules, if there are no others.
    own = [frame for frame in frames if "site-packages" not in Path(frame["file"]).parts]
    for frame in reversed(own or frames):
        return f" at {Path(frame['file']).name}:{frame['line']}"
    return ""
