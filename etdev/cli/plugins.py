"""`etdev plugins`: which plugins are installed, and what keeps the others from working."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from etdev.cli import options, results, tables
from etdev.cli.group import Command
from etdev.cli.progress import console, import_torch, lines, quieted
from etdev.cli.verbosity import Verbosity
from etdev.errors import PluginError
from etdev.registry import load
from etdev.registry.selection import Finding, discover
from etdev.registry.watchdog import watched
from etdev.schema.device import Probe
from etdev.schema.documents import PLUGINS


@click.command("plugins", cls=Command)
@click.option(
    "--check", is_flag=True, help="Exit with 1 if a plugin that lowerings ask can't be used."
)
@options.as_json
@options.registry
@options.debug
def command(check: bool, as_json: bool, registry: Path | None) -> None:
    """List plugins in claim order, with their status and hooks.

    The status of a plugin that can't be used is the reason. Imports torch only where the registry
    names an ExecuTorch Partitioner.

    \b
    etdev plugins
    etdev plugins --registry mine.toml --json
    etdev plugins --check

    Exit codes: 0, even if a plugin can't be used unless with --check, 1 if the registry can't be
    read, 2 for wrong usage.
    """
    table = load(registry)
    debug = options.debugging()
    with quieted(debug) as err, watched(lines(err)):
        if any(entry.partitioner for entry in table.entries):
            # A Partitioner's module would import it, with all that torch and its libraries log.
            import_torch(debug, Verbosity.chosen())
        findings = discover(table)
    if as_json:
        results.document(PLUGINS.stamped({"plugins": [_row(finding) for finding in findings]}))
    else:
        results.show(_report(findings))
        if all(finding.plugin and finding.plugin.builtin for finding in findings):
            console().print("no other plugin is installed; pip install etdev-cpu")
    broken = [finding for finding in findings if finding.broken]
    if check and broken:
        names = ", ".join(finding.name for finding in broken)
        where = table.path or "the registry"
        raise PluginError(names, "can't be used", f"mend it, or take it out of {where}")


def _report(findings: Sequence[Finding]) -> Table:
    rows = tables.table("plugin", "distribution", "status", "devices", "hooks")
    for finding in findings:
        origin = f"{finding.distribution} {finding.version}".strip() or "-"
        devices, hooks = " ".join(_devices(finding)), " ".join(_hooks(finding))
        rows.add_row(finding.name, origin, _status(finding), devices or "-", hooks or "-")
    return rows


def _row(finding: Finding) -> dict[str, object]:
    status = _status(finding)
    return {
        "name": finding.name,
        "distribution": finding.distribution,
        "version": finding.version,
        "status": status,
        "ready": status == "ready",
        "asked": finding.asked,
        "devices": _devices(finding),
        "hooks": _hooks(finding),
    }


def _status(finding: Finding) -> str:
    probed = _probed(finding)
    return (probed.unfit or "ready") if probed else finding.problem


def _devices(finding: Finding) -> list[str]:
    probed = _probed(finding)
    return [str(device) for device in probed.devices] if probed else []


def _hooks(finding: Finding) -> list[str]:
    return list(finding.plugin.hooks) if finding.plugin else []


def _probed(finding: Finding) -> Probe | None:
    # A plugin that the registry leaves out was probed, and is still not available.
    return finding.probed if finding.plugin else None
