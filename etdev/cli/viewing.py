"""Views: files that plugins write of a plan, such as the page that `--html` is for."""

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
    from etdev.lowering.lowered import Lowered
    from etdev.pte.artifact import Artifact
    from etdev.schema.profile import Profile

HTML = "html"
_NOTE = "The file carries no ledger, so who was asked and why is not known: lower it --with-ledger."


@frozen(eq=False)
class Viewed:
    """A plan with all that the command knows about it.

    Args:
        plan: The plan.
        title: The model's source, or the name of the .pte.
        artifact: What the .pte holds; None if there is no .pte.
        profile: What was measured of a run; None if nothing was.
        stages: Seconds of each stage of the lowering.
        note: What else a reader should know, such as why something is missing.
    """

    plan: Plan
    title: str
    artifact: Artifact | None = None
    profile: Profile | None = None
    stages: Mapping[str, float] = field(factory=dict)
    note: str = ""


class View(Protocol):
    """What an entry point of the group `etdev.views` names: an object or a module."""

    def check(self, file: Path) -> None:
        """Refuse to begin where the file could not be written in the end.

        Raises:
            EtdevError: Something that the view needs is missing, or the file can't be written.
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
        help="Write a page there to look at it in a browser; needs etdev[page].",
    )
    other = click.option(
        "--view",
        multiple=True,
        metavar="NAME=FILE",
        help="Write the view of that name, which a plugin has; --html FILE is --view html=FILE.",
    )
    decorated: Callable[..., Any] = page(other(called))
    return decorated


def _parsed(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not name or not equals or not file:
        raise click.BadParameter(f"{text!r} is not NAME=FILE", param_hint="--view")
    return name, Path(file)


def check(views: Mapping[str, Path]) -> None:
    """Refuse to begin if a view is not installed, or can't be written.

    Raises:
        EtdevError: It isn't, or can't.
    """
    for name, file in views.items():
        view = _view(name)
        with _named(name):
            view.check(file)


def write(views: Mapping[str, Path], viewed: Viewed) -> None:
    """Write every view.

    Raises:
        EtdevError: One can't be written.
    """
    for name, file in views.items():
        view = _view(name)
        with _named(name):
            view.write(file, viewed)


def of_lowered(program: Path, lowered: Lowered) -> Viewed:
    """Return what there is to view of a lowering, with the time of each stage."""
    from etdev.pte.read import read

    stages = lowered.stages.seconds
    return Viewed(lowered.plan, program.name, artifact=read(program), stages=stages)


def of_artifact(
    program: Path, artifact: Artifact | None = None, profile: Profile | None = None
) -> Viewed:
    """Return what there is to view of a .pte: its own plan, or what can be seen of that.

    Args:
        program: The .pte.
        artifact: What it holds, if it was read before.
        profile: Of a run of it.

    Raises:
        ArtifactError: It is not a .pte.
    """
    from etdev.pte.embedded_plan import find_ledger
    from etdev.pte.instructions import seen
    from etdev.pte.read import read

    known = find_ledger(program)
    plan, note = known or seen(program), "" if known else _NOTE
    return Viewed(plan, program.name, artifact or read(program), profile, note=note)


def _view(name: str) -> View:
    view: View = extensions.load(extensions.VIEWS, name, _fault)
    return view


def _fault(view: object) -> str:
    missing = [name for name in ("check", "write") if not callable(getattr(view, name, None))]
    return f"is not a view: it has no {' and no '.join(missing)}" if missing else ""


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the view in an error that is not its own word."""
    try:
        yield
    except EtdevError:
        raise
    except Exception as error:
        what = f"it raised {first_line(error)}"
        raise PluginError(f"view {name!r}", what, "report it to its author") from error
