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
    """A kind of document, named by its keys `schema` and `version`.

    What it holds and which command writes it are for messages, if etdev reads it.
    """

    name: str
    version: int
    holds: str = ""
    source: str = ""

    def stamped(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document with these keys."""
        return {SCHEMA: self.name, VERSION: self.version, **body}

    def read(self, text: str, kind: type[T], who: str) -> T:
        """Return the value that a document's text holds, which may lack its schema.

        Raises:
            EtdevError: It is not JSON, another document or version, or a key is missing or has a
                wrong value; the message has the key's path.
        """
        try:
            data = json.loads(text)
            known = {SCHEMA: self.name, VERSION: self.version}
            for key in [key for key in known if isinstance(data, dict) and key in data]:
                if (found := data.pop(key)) != known[key]:
                    raise EtdevError("", f"its {key} is {found!r}, not {known[key]!r}")
            return CONVERTER.structure(data, kind)
        except (ValueError, RecursionError) as error:
            what = f"it is not JSON ({first_line(error)})"
        except REFUSALS as refusal:
            first = next(problems(refusal))
            what = ", ".join(filter(None, (f"{first.key} {first.what}".strip(), first.cure)))
        raise EtdevError(who, f"is not {self.holds}: {what}", f"write it with {self.source}")


PLAN = Document("etdev.plan", 1, "a plan", "etdev plan --json")
EXPLANATION = Document("etdev.explanation", 2)
DIFFERENCE = Document("etdev.difference", 2)
LOWERING = Document("etdev.lowering", 1)
RUN = Document("etdev.run", 2)
ARTIFACT = Document("etdev.artifact", 1)
CHECK = Document("etdev.check", 1)
PLUGINS = Document("etdev.plugins", 1)
CACHE = Document("etdev.cache", 1)
QUIRKS = Document("etdev.quirks", 1)
DISTRIBUTION = Document("etdev.distribution", 1)
GUIDE = Document("etdev.guide", 1)
DOCUMENTS = tuple(known for known in list(vars().values()) if isinstance(known, Document))
