"""Files that plugins write of a plan, such as the page of `--html`: the group `etdev.views`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
from attrs import field, frozen

from etdev.errors import EtdevError, PluginError, first_line
from etdev.registry import extensions
from etdev.schema.plan import Plan

if TYPE_CHECKING:
    from etdev.pte.artifact import Artifact
    from etdev.schema.profile import Profile

HTML = "html"
_NOTE = "The file carries no ledger, so who was asked and why is not known: lower it --with-ledger."


@frozen(eq=False)
class Viewed:
    """A plan with everything that the command knows about it.

    Args:
        plan: The plan.
        title: The model's source, or the name of the .pte.
        artifact: The contents of the .pte; None without a .pte.
        profile: The profile of a run; None if nothing was measured.
        stages: Seconds of each stage of the lowering.
        note: A remark for the reader, such as why something is missing.
    """

    plan: Plan
    title: str
    artifact: Artifact | None = None
    profile: Profile | None = None
    stages: Mapping[str, float] = field(factory=dict)
    note: str = ""


class View(Protocol):
    """The object or module that an entry point of the group `etdev.views` names."""

    def check(self, file: Path) -> None:
        """Check, before the long work begins, that the file can be made and written.

        Raises:
            EtdevError: A library that the view needs is missing, or the file can't be written.
        """

    def write(self, file: Path, viewed: Viewed) -> None:
        """Write the file.

        Raises:
            EtdevError: It can't be written.
        """


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --html and --view, which give a command the argument `views`: files by view."""

    @wraps(command)
    def called(*, html: Path | None, view: Sequence[str], **given: Any) -> Any:
        named = [*([(HTML, html)] if html else []), *map(_parsed, view)]
        if len(dict(named)) < len(named):
            raise click.UsageError("give one file for each view")
        return command(views=dict(named), **given)

    page = click.option(
        "--html",
        type=click.Path(path_type=Path),
        help="Write an interactive page there for a browser; needs etdev[page].",
    )
    other = click.option(
        "--view",
        multiple=True,
        metavar="NAME=FILE",
        help="Write a file with the view of that name, which a plugin adds; --html FILE is "
        "--view html=FILE.",
    )
    decorated: Callable[..., Any] = page(other(called))
    return decorated


def _parsed(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not name or not equals or not file:
        raise click.BadParameter(f"{text!r} is not NAME=FILE", param_hint="--view")
    return name, Path(file)


def check(views: Mapping[str, Path]) -> None:
    """Check that every view is installed and its file can be written.

    Raises:
        EtdevError: A view is not installed, or its file can't be written.
    """
    for name, file in views.items():
        with _loaded(name) as view:
            view.check(file)


def write(views: Mapping[str, Path], viewed: Viewed) -> None:
    """Write every view.

    Raises:
        EtdevError: A file can't be written.
    """
    for name, file in views.items():
        with _loaded(name) as view:
            view.write(file, viewed)


def of_artifact(
    program: Path, artifact: Artifact | None = None, profile: Profile | None = None
) -> Viewed:
    """Return a .pte with the plan in it, or with the part of the plan that the .pte shows.

    Args:
        program: The .pte.
        artifact: Its contents, if they were read before.
        profile: The profile of a run.

    Raises:
        ArtifactError: The file is not a .pte.
    """
    from etdev.pte.embedded_plan import find_ledger
    from etdev.pte.instructions import seen
    from etdev.pte.read import read

    known = find_ledger(program)
    plan, note = known or seen(program), "" if known else _NOTE
    return Viewed(plan, program.name, artifact or read(program), profile, note=note)


@contextmanager
def _loaded(name: str) -> Iterator[View]:
    """Load a view, and name it in errors that it does not raise on purpose."""
    view = extensions.load(extensions.VIEWS, name, _fault)
    try:
        yield view
    except EtdevError:
        raise
    except Exception as error:
        what = f"it raised {first_line(error)}"
        raise PluginError(f"view {name!r}", what, "report it to its author") from error


def _fault(view: object) -> str:
    missing = [name for name in ("check", "write") if not callable(getattr(view, name, None))]
    return f"is not a view: it has no {' and no '.join(missing)}" if missing else ""
