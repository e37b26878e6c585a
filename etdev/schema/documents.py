"""The JSON documents that `--json` prints: objects that open with their schema and version.

plugins/INTEGRATION.md explains their keys, and tests/cli/documents.txt lists those of each version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import frozen

from etdev.errors import EtdevError, first_line
from etdev.schema.structuring import CONVERTER, REFUSALS, problems

T = TypeVar("T")
SCHEMA, VERSION = "schema", "version"


@frozen
class Document:
    """A kind of document: what it holds and which command writes it are for messages.

    Values of its keys `schema` and `version` are name and version.
    """

    name: str
    version: int
    holds: str
    source: str

    def stamped(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document with these keys."""
        return {SCHEMA: self.name, VERSION: self.version, **body}

    def opened(self, text: str, who: str) -> dict[str, Any]:
        """Return the keys of a document's text, which may lack its schema.

        Raises:
            EtdevError: It is not JSON, or is another document or version.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._refused(who, f"it is not JSON ({first_line(error)})") from error
        if not isinstance(data, dict):
            raise self._refused(who, f"it is a JSON {type(data).__name__}")
        kind, version = data.pop(SCHEMA, self.name), data.pop(VERSION, self.version)
        if kind != self.name:
            raise EtdevError(who, f"is {kind!r}, not {self.name!r}", f"write it with {self.source}")
        if version != self.version:
            what = f"has version {version!r} of {self.name}, this etdev reads {self.version}"
            raise EtdevError(who, what, f"write it with {self.source} of this etdev")
        return data

    def read(self, text: str, kind: type[T], who: str) -> T:
        """Return the value that a document's text holds.

        Raises:
            EtdevError: As `opened`, or a key is missing or has a wrong value; the message has the
                key's path.
        """
        data = self.opened(text, who)
        try:
            return CONVERTER.structure(data, kind)
        except RecursionError:
            what = "it is nested too deeply"
        except REFUSALS as refusal:
            first, *others = problems(refusal)
            cure = f", {first.cure}" if first.cure else ""
            more = f", and {len(others)} more" if others else ""
            what = f"{first.key} {first.what}{cure}{more}".strip()
        raise self._refused(who, what)

    def _refused(self, who: str, what: str) -> EtdevError:
        return EtdevError(who, f"is not {self.holds}: {what}", f"write it with {self.source}")


PLAN = Document("etdev.plan", 1, "a plan", "etdev plan --json")
EXPLANATION = Document("etdev.explanation", 1, "an explanation", "etdev explain --json")
DIFFERENCE = Document("etdev.difference", 1, "a difference", "etdev diff --json")
LOWERING = Document("etdev.lowering", 1, "what was written", "etdev lower --json")
RUN = Document("etdev.run", 1, "a run", "etdev run --json")
ARTIFACT = Document("etdev.artifact", 1, "what a .pte holds", "etdev inspect --json")
CHECK = Document("etdev.check", 1, "what a check found", "etdev check --json")
PLUGINS = Document("etdev.plugins", 1, "the installed plugins", "etdev plugins --json")
CACHE = Document("etdev.cache", 1, "what the compile cache holds", "etdev cache info --json")
QUIRKS = Document("etdev.quirks", 1, "the faults of other projects", "etdev quirks --json")
DISTRIBUTION = Document("etdev.distribution", 1, "a new distribution", "etdev new plugin --json")
GUIDE = Document("etdev.guide", 1, "the guide for authors", "etdev new guide --json")
DOCUMENTS = tuple(known for known in list(vars().values()) if isinstance(known, Document))
