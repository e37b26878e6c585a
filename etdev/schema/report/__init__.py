"""Tables and sentences about plans, differences and profiles.

Importing this package makes notebooks and rich show these values as tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import frozen

from etdev.schema import display
from etdev.schema.difference import Difference
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Profile
from etdev.schema.report import presenters
from etdev.schema.report.colours import colours_of
from etdev.schema.report.sheet import Sheet


@frozen
class Report:
    """The sheets of a value, with a colour for each owner.

    Args:
        sheets: The sheets.
        colours: Colours by owner.
    """

    sheets: tuple[Sheet, ...]
    colours: Mapping[str, str]

    def html(self) -> str:
        """Return the sheets in HTML."""
        return "\n".join(sheet.html(self.colours) for sheet in self.sheets)

    def rich(self) -> Any:
        """Return the sheets for rich."""
        # Programs that only read a plan don't need rich.
        from etdev.schema.report.rich_table import rich

        return rich(self.sheets)


def _register(
    kind: type,
    present: Callable[[Any], Iterable[Sheet]],
    owners: Callable[[Any], Mapping[str, str]] = lambda _: {},
) -> None:
    display.tables_of.register(kind, lambda value: Report(tuple(present(value)), owners(value)))


def _method_colours(method: MethodPlan) -> Mapping[str, str]:
    asked = (verdict.plugin for entry in method.ledger for verdict in entry.verdicts)
    return colours_of(asked, method.ledger.owned())


def _plan_colours(plan: Plan) -> Mapping[str, str]:
    return colours_of((name for name, _ in plan.plugins), (p.plugin for p in plan.partitions))


def _profile_colours(profile: Profile) -> Mapping[str, str]:
    return colours_of((), sorted({cost.plugin for cost in profile.costs if cost.plugin}))


_register(MethodPlan, presenters.method, _method_colours)
_register(Plan, presenters.plan, _plan_colours)
_register(Difference, presenters.difference)
_register(Profile, presenters.profile, _profile_colours)
