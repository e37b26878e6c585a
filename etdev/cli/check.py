"""`etdev check` lists the parts of a .pte that would not load or run on a target."""

from __future__ import annotations

from pathlib import Path

import click

from etdev.cli import explain, options, results
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.schema.device import Device
from etdev.schema.documents import CHECK


@click.command("check", cls=Command)
@options.program
@click.option("--plan", "plan_file", type=options.FILE, help="Its plan, from plan --json.")
@click.option("--target", default="cpu", show_default=True, help="Its devices, as cpu,cuda:0.")
@options.data
@options.as_json
@options.registry
@options.debug
def command(
    program: Path, plan_file: Path | None, target: str, data: Path | None, registry: Path | None
) -> None:
    """List the parts of a .pte that would not load or run on a target.

    Looks for backends and kernels missing in this machine's runtime, devices that the target
    doesn't have, labels that the payload contradicts, a missing .ptd, and differences from a plan.
    Notes name delegates that run native code of the file, and problems of some loaders only; the
    check is for executorch.runtime, the Python loader that `etdev run` uses.

    \b
    etdev check net.pte
    etdev check net.pte --target cpu,cuda:0 --plan plan.json

    Exit codes: 0 if it loads and runs there, 1 for a problem or an error, 2 for wrong usage.
    """
    targets = [Device.parse(text) for text in target.split(",")]
    with working() as say:
        say("check", str(program))
        from etdev.registry import load
        from etdev.registry.selection import discover
        from etdev.runtime.check import check, notes

        plugins = [finding.plugin for finding in discover(load(registry)) if finding.plugin]
        plan = explain.read_plan(plan_file) if plan_file else None
        problems = check(program, targets, plan, plugins, data)
        known = notes(program, plugins)
    body = {"program": str(program), "targets": list(map(str, targets))}
    told = [*(problems or [f"loads and runs on {target}"]), *(f"note: {note}" for note in known)]
    results.report(
        lambda: CHECK.stamped({**body, "problems": problems, "notes": known}),
        [f"{program}: {text}" for text in told],
    )
    if problems:
        click.get_current_context().exit(1)
