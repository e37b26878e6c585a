"""`etdev plugins`: which plugins are installed, and what keeps the others from working."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from etdev.cli import options, tables
from etdev.cli.progress import console, lines
from etdev.registry import load
from etdev.registry.selection import Finding, discover
from etdev.schema.device import Probe
from etdev.waiting import watched


@click.command("plugins")
@options.as_json
@options.registry
@options.debug
def command(as_json: bool, registry: Path | None) -> None:
    """List plugins in claim order, with their status and hooks.

    The status of a plugin that can't be used is the reason. Imports torch only where the registry
    names an ExecuTorch Partitioner.

    \b
    etdev plugins
    etdev plugins --registry mine.toml --json

    Exit codes: 0, even if a plugin can't be used, 1 if the registry can't be read, 2 for wrong
    usage.
    """
    with watched(lines(console())):
        findings = discover(load(registry))
    if as_json:
        print(json.dumps([_row(finding) for finding in findings], indent=2))
    elif findings:
        tables.show(_report(findings))
    else:
        console().print("no plugin is installed; pip install etdev-cpu")


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
