"""Page of a plan, of a .pte or of a profile, as one HTML file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from etdev.files import write_text
from etdev.schema.plan import Plan
from etdev_page.charts import charts
from etdev_page.document import document

if TYPE_CHECKING:
    from etdev.pte.artifact import Artifact
    from etdev.schema.profile import Profile

_FOLDER = Path(__file__).parent
# In this order, since code that runs while a file is read uses the files before it.
_SCRIPTS = (
    *("elements", "model", "layout", "drawing", "camera", "folding"),
    *("filters", "details", "tables", "views", "start"),
)
# An HTML parser ends a script at its first `</script`, and begins a comment at `<!--`, also inside
# of JSON text; JSON reads the escaped form as the same text.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


@frozen
class Page:
    """A page that shows a plan in a browser. Equal plans give equal bytes.

    Args:
        plan: The plan.
        title: Text above it.
        artifact: The .pte of the plan, for its memory.
        profile: Profile of a run.
        stages: Seconds of each stage of the lowering.
        note: Remark for the reader, such as why something is missing.

    Example:
        Page(lowered.plan, stages=lowered.stages.seconds).save("plan.html")
    """

    plan: Plan
    title: str = "plan"
    artifact: Artifact | None = None
    profile: Profile | None = None
    stages: Mapping[str, float] = field(factory=dict)
    note: str = ""

    def data(self) -> dict[str, Any]:
        """Return the contents of the page as plain data."""
        profile = self.profile
        times = {profile.method: _times(profile)} if profile else {}
        return {
            "title": self.title,
            "note": self.note,
            **document(self.plan, times),
            "charts": charts(self.plan, self.artifact, profile, self.stages),
            "run": [profile.method, profile.ms] if profile else None,
        }

    def html(self) -> str:
        """Return the page as text.

        Raises:
            EtdevError: fast-sugiyama is not installed.
        """
        parts = {
            "title": escape(self.title),
            "style": _read("page.css"),
            "data": json.dumps(self.data(), separators=(",", ":")).translate(_ESCAPES),
            "script": "\n".join(['"use strict";', *(_read(f"script/{s}.js") for s in _SCRIPTS)]),
        }
        pieces = _read("page.html").split("@@")
        # Every second piece is the name of a part. Parts are not scanned for names.
        return "".join(parts[p] if index % 2 else p for index, p in enumerate(pieces))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file.

        Raises:
            EtdevError: It can't be written, or as `html`.
        """
        file = Path(path)
        write_text(file, self.html())
        return file


def _times(profile: Profile) -> Mapping[str, float]:
    """Return the times of a profile, of delegates alone if the plan is not known."""
    return profile.times or {cost.name: cost.ms for cost in profile.costs}


def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")
