"""All rows of the table: those of the host, then those that plugins add."""

from __future__ import annotations

from collections.abc import Iterable

from etdev.errors import PluginError
from etdev.quirks import QUIRKS
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.quirk import Quirk

HOST = "etdev"


def rows_of(plugins: Iterable[Plugin]) -> list[tuple[str, Quirk]]:
    """Return who has which row, in their order, also those for other versions.

    Args:
        plugins: The plugins that are asked, in claim order.

    Raises:
        PluginError: A plugin gives a row the name of another one.
    """
    rows = [(HOST, row) for row in QUIRKS]
    owners = {row.name: HOST for row in QUIRKS}
    for plugin in plugins:
        for row in answers.quirks(plugin):
            if row.name in owners:
                what = f"has a quirk {row.name!r}, as {owners[row.name]} has"
                raise PluginError(plugin.name, what, "give it another name")
            owners[row.name] = plugin.name
            rows.append((plugin.name, row))
    return rows
