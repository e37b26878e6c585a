"""Results as JSON with short lines, so that a new one is a line of a diff."""

from __future__ import annotations

import json
from typing import Any


def by_line(document: Any, levels: int) -> str:
    """Return JSON with a line for each item of the outermost containers."""
    if not levels or not document or not isinstance(document, dict | list):
        return json.dumps(document)
    if isinstance(document, list):
        return "[\n" + ",\n".join(by_line(item, levels - 1) for item in document) + "\n]"
    items = [f"{json.dumps(key)}: {by_line(value, levels - 1)}" for key, value in document.items()]
    return "{\n" + ",\n".join(items) + "\n}"
