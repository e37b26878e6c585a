"""`etdev check` loads a .pte, and lists the parts that would not load on a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from etdev.cli import explain, options, results
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.schema.device import Device
from etdev.schema.documents import CHECK

if TYPE_CHECKING:
    from etdev.schema.target import Target


@click.command("check", cls=Command)
@options.program
@click.option("--plan", "plan_file", type=options.FILE, help="A plan to match, from plan --json.")
@click.option(
    "--device", default="here", show_default=True, help="Devices it may use, such as cpu,cuda:0."
)
@options.target
@options.data
@options.as_json
@options.registry
@options.debug
def command(
    program: Path,
    plan_file: Path | None,
    device: str,
    target: Target | None,
    data: Path | None,
    registry: Path | None,
) -> None:
    """List the parts of a .pte that would not load.

    Looks for backends and kernels missing in the runtime, devices that --device doesn't name,
    device labels that a payload contradicts, a missing .ptd, bytes that have changed since the file
    was written, and differences from a plan. Then the runtime loads every method in another
    process, unless it needs a device that this machine lacks or contains native code. Notes list
    those methods with what is left to check there, and known problems of some loaders.

    \b
    etdev check net.pte
    etdev check net.pte --device cpu,cuda:0 --plan plan.json
    etdev check net.pte --target pi

    Exit codes: 0 if no problem is found, 1 for a problem or an error, 2 for wrong usage.
    """
    targets = None if device == "here" else [Device.parse(text) for text in device.split(",")]
    from etdev.pte.read import read
    from etdev.registry import load
    from etdev.registry.selection import discover
    from etdev.runtime.check import check, notes, unloaded
    from etdev.runtime.runners import on_target

    plan = explain.read_plan(plan_file) if plan_file else None
    read(program)
    with working(runs=True, torch=False) as say:
        say("check", str(program))
        plugins = [finding.plugin for finding in discover(load(registry)) if finding.plugin]
        problems = check(program, targets, plan, plugins, data, target)
        skipped = unloaded(read(program), here=targets is None)
        remarks = [f"method {name} was not loaded: {why}" for name, why in skipped.items()]
        remarks += notes(program, plugins)
        for each in on_target(target) if target and not problems else ():
            remarks.append(", ".join(f"{key} {value}" for key, value in each.facts.items()))
    devices = ["here"] if targets is None else list(map(str, targets))
    body = {"program": str(program), "targets": devices}
    place = device if targets is None else f"on {device}"
    place = f"on {target.on}" if target else place
    done = "no problem found, but not every method was loaded" if skipped else f"loads {place}"
    told = [*(problems or [done]), *(f"note: {note}" for note in remarks)]
    results.report(
        lambda: CHECK.stamped({**body, "problems": problems, "notes": remarks}),
        [f"{program}: {text}" for text in told],
    )
    if problems:
        click.get_current_context().exit(1)
