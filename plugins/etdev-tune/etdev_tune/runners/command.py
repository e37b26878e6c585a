"""A command that starts a Python on a target."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from attrs import frozen

from etdev.errors import RunError

# What a template has in place of the Python that is started: its words, or one word in which a
# shell finds them.
WORDS, QUOTED = "{command}", "{quoted}"
# The arguments alone, after the path of a Python.
ARGUMENTS = "{arguments}"
_EXAMPLE = f"write docker exec -i box {WORDS}, or ssh -p 2222 host {QUOTED}"


@frozen
class Command:
    """A command as a template.

    Args:
        name: How the target was asked for.
        template: Its words, one of which stands for the Python.
        python: The Python on the target.
        kind: What it goes through: `local`, `ssh`, or `command`.
        environment: Its environment; None for ours.
    """

    name: str
    template: tuple[str, ...]
    python: str = "python3"
    kind: str = "command"
    environment: Mapping[str, str] | None = None

    def words(self, arguments: Sequence[str]) -> list[str]:
        """The command with the arguments of its Python."""
        whole = [self.python, *arguments]
        places = {WORDS: whole, QUOTED: [shlex.join(whole)], ARGUMENTS: list(arguments)}
        return [word for part in self.template for word in places.get(part, [part])]


def of_template(text: str) -> Command:
    """Read a template such as `docker exec -i box {command}`.

    Raises:
        RunError: It is not one.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise RunError(text, f"can't be read as a command ({error})", _EXAMPLE) from error
    if sum(word in (WORDS, QUOTED, ARGUMENTS) for word in words) != 1 or words[0] == QUOTED:
        what = f"is not a runner: a command has one word {WORDS}, {QUOTED} or {ARGUMENTS}"
        raise RunError(text, what, f"take local, ssh:host or adb, or {_EXAMPLE}")
    return Command(text, words)
