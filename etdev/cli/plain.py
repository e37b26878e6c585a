"""Plain text: what a terminal shows of names that come out of files.

A name may hold what a terminal takes for a command, such as to clear the screen or to print the
rest from right to left, and what stdout can't encode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

_PICTURES = 0x2400
# Each of C0 has a picture of its own, tab and newline are what they say.
_SHOWN = {code: chr(_PICTURES + code) for code in range(0x20) if chr(code) not in "\t\n"}
_SHOWN[0x7F] = "\u2421"
# C1, marks that turn the direction of text, and halves of characters.
_UNSEEN = (
    *range(0x80, 0xA0),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),
)
_SHOWN.update(dict.fromkeys(_UNSEEN, "\ufffd"))


def plain(text: str) -> str:
    """A text without what a terminal would do, rather than show."""
    return text.translate(_SHOWN)


class Plain(RenderHook):
    """Has a console show all that it prints as plain text, in its own styles."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Wrap each."""
        return [_Shown(renderables)]


class _Shown:
    def __init__(self, renderables: Sequence[ConsoleRenderable]) -> None:
        self._renderables = renderables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for renderable in self._renderables:
            yield from _segments(console.render(renderable, options))


def _segments(segments: Iterable[Segment]) -> Iterable[Segment]:
    for text, style, control in segments:
        yield Segment(text if control else plain(text), style, control)
