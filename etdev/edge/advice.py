"""The advice of torch.export on a model that it can't trace, in an error of etdev."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

from etdev.errors import first_line

_LOGS = re.compile(r' For more information, run with TORCH_LOGS="[^"]*"\.')
# The dimensions that a method constrains; what follows each is about torch's own functions.
_VIOLATION = re.compile(r"^  - (.+?)\.?(?: If you're using .*)?$", re.MULTILINE)
_FIXES = re.compile(r"^Suggested fixes:\n((?:  .+\n?)+)", re.MULTILINE)
_CHECK = re.compile(r"^  \d\. (torch\._check\(.*\))$", re.MULTILINE)
_OWN = os.path.join(Path(__file__).parents[1], "")
# Torch's frames, and those of code that it generates.
_OTHERS = re.compile(r"^<|site-packages[/\\](torch|executorch)[/\\]")
_CURE = "see the cause, or export it yourself and give the ExportedProgram"


def problem_of(error: BaseException) -> str:
    """Return the error of torch.export in one line, with the user's line that raised it."""
    head, others = _LOGS.sub("", first_line(error)), _VIOLATION.findall(str(error))
    if others:
        more = f", and {len(others) - 1} more such" if others[1:] else ""
        head = f"{head} {others[0]}{more}"
    lines = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OWN) and not _OTHERS.search(frame.filename)
    ]
    return f"{head} at {Path(lines[-1].filename).name}:{lines[-1].lineno}" if lines else head


def cure_of(error: BaseException) -> str:
    """Return torch's advice, if it has any."""
    text = str(error)
    if fixes := _FIXES.search(text):
        return f"torch suggests {', '.join(map(str.strip, fixes[1].strip().splitlines()))}"
    if checks := _CHECK.findall(text):
        return f"say which it is, before that line: {' or '.join(checks)}"
    return _CURE
