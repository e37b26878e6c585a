"""Files of a plan that a command writes next to its result, such as the page of `--html`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
from attrs import field, frozen

from etdev.cli.options import given, remembered, together
from etdev.cli.outputs import Output, force
from etdev.cli.progress import complain
from etdev.errors import EtdevError, PluginError, first_line
from etdev.registry import extensions
from etdev.schema.plan import Plan

if TYPE_CHECKING:
    from etdev.pte.artifact import Artifact
    from etdev.schema.profile import Profile

_NOTE = (
    "The file has no ledger, so who was asked and why is not known: lower it without --no-ledger."
)


@frozen
class Scatter:
    """A chart of points with two logarithmic axes.

    Args:
        title: Its title.
        axes: Names of the horizontal and of the vertical axis.
        points: Each with `x`, `y`, its `name`, the `text` that explains it, and `marked` if it
            stands out.
    """

    title: str
    axes: tuple[str, str]
    points: Sequence[Mapping[str, Any]]


@frozen(eq=False)
class Viewed:
    """A plan with everything that the command knows about it.

    Args:
        plan: The plan; one without methods for a .pte that carries none.
        title: The model's source, or the name of the .pte.
        artifact: The contents of the .pte; None without a .pte.
        profile: The profile of a run; None if nothing was measured.
        stages: Seconds of each stage of the lowering.
        note: A remark for the reader, such as why something is missing.
        before: The same of the plan that `etdev diff` compares with.
        scatters: Scatter charts that the command adds.
    """

    plan: Plan
    title: str
    artifact: Artifact | None = None
    profile: Profile | None = None
    stages: Mapping[str, float] = field(factory=dict)
    note: str = ""
    before: Viewed | None = None
    scatters: Sequence[Scatter] = ()


class View(Protocol):
    """A file that a person looks at: an object or a module that an entry point names."""

    def check(self, file: Path) -> None:
        """Check, before any work, that the view can be written to a file.

        Raises:
            EtdevError: It can't; the text has the cure.
        """

    def write(self, file: Path, viewed: Viewed) -> None:
        """Write the view, whole or not at all.

        Raises:
            EtdevError: It can't be written.
        """


def _add(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Add the files of an option to the views of the command."""
    views = context.meta.setdefault("etdev.views", {})
    for text in value if isinstance(value, tuple) else [f"html={value}"] if value else []:
        name, _, file = text.partition("=")
        if not name or not file:
            raise click.BadParameter(f"{text!r} is not NAME=FILE", param_hint="--view")
        if name in views:
            raise click.UsageError("give one file for each view")
        views[name] = Path(file)


options = together(
    remembered(
        "--html",
        type=Output(),
        callback=_add,
        metavar="FILE",
        help="Write an interactive page for a browser to FILE; needs etdev[page].",
    ),
    remembered(
        "--view",
        callback=_add,
        multiple=True,
        metavar="NAME=FILE",
        help="Write the view NAME, which an installed distribution adds, to FILE. etdev[page] adds "
        "html, which --html writes, and node-data=DIR for Model Explorer.",
    ),
    force,
)


def check() -> None:
    """Check that every view of the command is installed and its file can be written."""
    for name, file in given("views").items():
        with _loaded(name) as view:
            view.check(file)


def write(viewed: Callable[[], Viewed]) -> None:
    """Write every view of the command; what is viewed is made only if there is a view."""
    if views := given("views"):
        known = viewed()
        for name, file in views.items():
            with _loaded(name) as view:
                view.write(file, known)
            if not given("quiet"):
                complain(f"wrote {file}")


def of_artifact(program: Path, profile: Profile | None = None) -> Viewed:
    """Return a .pte with the plan that it carries."""
    from etdev.pte.embedded_plan import find_ledger
    from etdev.pte.read import read

    known = find_ledger(program)
    note = "" if known else _NOTE
    return Viewed(known or Plan(()), program.name, read(program), profile, note=note)


@contextmanager
def _loaded(name: str) -> Iterator[View]:
    """Load a view, and name it in errors that it does not raise on purpose."""
    view: View = extensions.load(extensions.VIEWS, name, _fault)
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
