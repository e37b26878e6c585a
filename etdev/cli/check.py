"""`etdev check`: what in a .pte would not load or not run on a target."""

from __future__ import annotations

from pathlib import Path

import click

from etdev.cli import options
from etdev.cli.progress import working
from etdev.errors import EtdevError, first_line
from etdev.schema.device import Device
from etdev.schema.plan import Plan


@click.command("check")
@options.program
@click.option("--plan", "plan_file", type=options.FILE, help="Its plan, from plan --json.")
@click.option("--target", default="cpu", show_default=True, help="Its devices, as cpu,cuda:0.")
@options.data
@options.registry
@options.debug
def command(
    program: Path, plan_file: Path | None, target: str, data: Path | None, registry: Path | None
) -> None:
    """List what in a .pte would not load or not run on a target.

    Looks for backends and kernels missing in this machine's runtime, devices the target doesn't
    have, labels that the payload contradicts, a missing .ptd, and differences from a plan.

    \b
    etdev check net.pte
    etdev check net.pte --target cpu,cuda:0 --plan plan.json

    Exit codes: 0 if it loads and runs there, 1 for a problem or an error, 2 for wrong usage.
    """
    targets = [Device.parse(text) for text in target.split(",")]
    with working(options.debugging()) as say:
        say("check", str(program))
        from etdev.registry import load
        from etdev.registry.selection import discover
        from etdev.runtime.check import check

        plugins = [finding.plugin for finding in discover(load(registry)) if finding.plugin]
        problems = check(program, targets, _read_plan(plan_file), plugins, data)
    for problem in problems:
        print(f"{program}: {problem}")
    if problems:
        click.get_current_context().exit(1)
    print(f"{program}: loads and runs on {target}")


def _read_plan(file: Path | None) -> Plan | None:
    if file is None:
        return None
    try:
        return Plan.from_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise EtdevError(str(file), f"can't be read ({error.strerror})", "give a file") from error
    except Exception as error:
        what = f"is not a plan ({first_line(error)})"
        raise EtdevError(str(file), what, "write it with etdev plan --json") from error
