"""README.md and plugins/README.md, read for the tests that run their blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDE = ROOT / "plugins" / "README.md"
INTEGRATION = ROOT / "plugins" / "INTEGRATION.md"
LANGUAGES = ("python", "toml", "sh", "")


@frozen
class Block:
    """A fenced block of a document.

    Args:
        document: Path of the document.
        line: Number of the block's first line.
        language: Of the fence: `python`, `toml`, `sh`, or empty for a picture.
        text: What is in it.
    """

    document: Path
    line: int
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that the block says it is in its first line; empty if it is none."""
        named = re.match(r"# ([\w./]+\.(?:py|toml))\n", self.text)
        return named[1] if named else ""

    @property
    def title(self) -> str:
        """Document and line, for the name of a test."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path, *languages: str) -> Iterator[Block]:
    """The blocks of a document that are in some languages, in order."""
    text = document.read_text(encoding="utf-8")
    for fence in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, fence.start(2)) + 1
        if not languages or fence[1] in languages:
            yield Block(document, line, fence[1], fence[2])


def commands(document: Path) -> list[str]:
    """The lines of its `sh` blocks, without their comments."""
    lines = [line for block in blocks(document, "sh") for line in block.text.splitlines()]
    return [line.partition("  #")[0].rstrip() for line in lines]


def rows(document: Path, header: str) -> list[list[str]]:
    """The cells of the rows under a table's header."""
    lines = iter(document.read_text(encoding="utf-8").splitlines())
    if header not in lines:
        raise LookupError(f"{document} has no table {header!r}")
    _, *table = takewhile(bool, lines)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def write_package(folder: Path) -> None:
    """The package of the guide, laid out as its blocks say."""
    for block in blocks(GUIDE, "python", "toml"):
        # A second registry.toml is another example of one.
        if block.file and not (folder / block.file).exists():
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
