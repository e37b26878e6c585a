"""`etdev plugins` lists the plugins, and the reasons why some can't be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etdev.cli import options, results
from etdev.cli.group import Command
from etdev.cli.progress import Display, import_torch, quieted
from etdev.registry import load
from etdev.registry.selection import Finding, discover
from etdev.registry.watchdog import watched
from etdev.report.sheet import Sheet
from etdev.schema.documents import PLUGINS
from etdev.schema.structuring import CONVERTER


@click.command("plugins", cls=Command)
@options.as_json
@options.registry
@options.debug
def command(registry: Path | None) -> None:
    """List plugins in claim order, with their status and hooks.

    The status of a plugin that can't be used says why; `not probed` means that its hook `probe`
    names no device. What a plugin that can't be imported has is known from its manifest,
    etdev-plugin.toml. Imports torch only if the registry names an ExecuTorch Partitioner.

    \b
    etdev plugins
    etdev plugins --registry mine.toml --json

    Exit codes: 0, even if a plugin can't be used, 1 if the registry can't be read, 2 for wrong
    usage.
    """
    table = load(registry)
    with quieted() as err, watched(Display(err)):
        if any(entry.partitioner for entry in table.entries):
            # A Partitioner's module would import torch with all of its logs.
            import_torch()
        findings = discover(table)
    rows = list(map(_row, findings))
    cells = [
        (
            row["name"],
            f"{row['distribution']} {row['version']}".strip() or "-",
            row["status"],
            " ".join(row["devices"]) or "-",
            " ".join(row["hooks"]) or "-",
        )
        for row in rows
    ]
    sheet = Sheet(("plugin", "distribution", "status", "devices", "hooks"), cells)
    results.report(lambda: PLUGINS.stamped({"plugins": rows}), [sheet])


def _row(finding: Finding) -> dict[str, Any]:
    # A plugin that the registry leaves out was probed, and is still not available.
    probed = finding.probed if finding.plugin else None
    known = "ready" if probed and probed.devices else "not probed"
    status = (probed.unfit or known) if probed else finding.problem
    manifest = finding.manifest
    devices = map(str, probed.devices) if probed else manifest.devices if manifest else ()
    own = finding.plugin or manifest
    return {
        "name": finding.name,
        "distribution": finding.distribution,
        "version": finding.version,
        "status": status,
        "ready": status == "ready",
        "asked": finding.asked,
        "devices": list(devices),
        "hooks": list(own.hooks) if own else [],
        "manifest": CONVERTER.unstructure(manifest),
    }
