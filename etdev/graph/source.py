"""Source lines: the line of the user's code that a node comes from."""

from __future__ import annotations

import re
from pathlib import Path

from torch.fx import Node

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>[0-9]+)')


def where(node: Node) -> str:
    """The innermost line of the user's code, as ` at net.py:12`; empty if it isn't known."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return ""
    frames = [m for m in _FRAME.finditer(trace) if "site-packages" not in Path(m["file"]).parts]
    frame = frames[-1] if frames else list(_FRAME.finditer(trace))[-1:]
    if not frame:
        return ""
    last = frame[0] if isinstance(frame, list) else frame
    return f" at {Path(last['file']).name}:{last['line']}"
