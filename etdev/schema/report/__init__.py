"""What people read of plans, differences and profiles, as tables and in sentences.

To import this package is to have notebooks and rich show those values, and plans compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from etdev.schema import display
from etdev.schema.difference import Difference, compared
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Profile
from etdev.schema.report import diff_sheets, plan_sheets, profile_sheets
from etdev.schema.report.colours import colours_of
from etdev.schema.report.diff import diff
from etdev.schema.report.sheet import Sheet, html

compared.register(Plan, diff)


def _register(kind: type, sheets: Any, colours: Any = lambda value: {}) -> None:
    """Have values of a class shown as sheets, with a colour for each owner."""

    def in_rich(value: Any) -> Any:
        # rich is no part of what every program needs that reads a plan.
        from etdev.schema.report.rich_table import rich

        return rich(sheets(value))

    display.in_html.register(kind, lambda value: html(sheets(value), colours(value)))
    display.in_rich.register(kind, in_rich)


def _sheets(plan: Plan) -> Iterable[Sheet]:
    return (sheet for method in plan.methods for sheet in plan_sheets.sheets(method))


def _colours(method: MethodPlan) -> Mapping[str, str]:
    asked = (verdict.plugin for entry in method.ledger for verdict in entry.verdicts)
    return colours_of(asked, method.ledger.owned())


def _plan_colours(plan: Plan) -> Mapping[str, str]:
    return colours_of((name for name, _ in plan.plugins), (p.plugin for p in plan.partitions))


def _profile_colours(profile: Profile) -> Mapping[str, str]:
    return colours_of((), sorted({cost.plugin for cost in profile.costs if cost.plugin}))


_register(MethodPlan, plan_sheets.sheets, _colours)
_register(Plan, _sheets, _plan_colours)
_register(Difference, diff_sheets.sheets)
_register(Profile, profile_sheets.sheets, _profile_colours)
