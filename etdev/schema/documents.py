"""The JSON documents that `--json` prints: objects that open with their schema and version.

plugins/INTEGRATION.md explains their keys, and tests/unit/cli/documents.txt lists those of each
version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import frozen

from etdev.errors import EtdevError, first_line
from etdev.schema.structuring import CONVERTER, REFUSALS, clause, problems

T = TypeVar("T")


@frozen
class Document:
    """A kind of document, named by its keys `schema` and `version`.

    Args:
        name: The schema, such as `etdev.plan`.
        version: Its version, which grows when a key goes, or means something else.
        command: The command that writes it, for messages, if etdev reads it.
    """

    name: str
    version: int
    command: str = ""

    def stamped(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document with these keys."""
        return {"schema": self.name, "version": self.version, **body}

    def of(self, value: object) -> dict[str, Any]:
        """Return the document of a frozen value, with its fields as keys."""
        return self.stamped(CONVERTER.unstructure(value))

    def read(self, text: str, kind: type[T], who: str) -> T:
        """Return the value that a document's text holds, which may lack its schema.

        Raises:
            EtdevError: It is not JSON, another document or version, or a key is missing or has a
                wrong value; the message has the key's path.
        """
        try:
            data = json.loads(text)
            for key, wanted in self.stamped({}).items():
                if isinstance(data, dict) and (found := data.pop(key, wanted)) != wanted:
                    raise EtdevError("", f"its {key} is {found!r}, not {wanted!r}")
            return CONVERTER.structure(data, kind)
        except (ValueError, RecursionError) as error:
            what = f"it is not JSON ({first_line(error)})"
        except REFUSALS as refusal:
            what = clause(next(problems(refusal)))
        what = f"is not a {self.name.removeprefix('etdev.')}: {what}"
        raise EtdevError(who, what, f"write it with {self.command} --json")


PLAN = Document("etdev.plan", 2, "etdev plan")
EXPLANATION = Document("etdev.explanation", 3)
DIFFERENCE = Document("etdev.difference", 2)
LOWERING = Document("etdev.lowering", 2)
RUN = Document("etdev.run", 2)
ARTIFACT = Document("etdev.artifact", 2)
CHECK = Document("etdev.check", 1)
PLUGINS = Document("etdev.plugins", 1)
CACHE = Document("etdev.cache", 1)
QUIRKS = Document("etdev.quirks", 2)
DISTRIBUTION = Document("etdev.distribution", 1)
GUIDE = Document("etdev.guide", 1)
MANUAL = Document("etdev.manual", 1)
DOCUMENTS = tuple(known for known in list(vars().values()) if isinstance(known, Document))
