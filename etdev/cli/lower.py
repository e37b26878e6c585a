"""`etdev lower` lowers a model to a .pte."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.cli import options, results, tables, writing
from etdev.cli.group import Command
from etdev.cli.progress import complain, working
from etdev.schema.documents import LOWERING

if TYPE_CHECKING:
    from etdev.lowered import Lowered
    from etdev.lowerer import Lowerer
    from etdev.schema.target import Target
    from etdev.verify.verification import Verification


@click.command("lower", cls=Command, epilog=options.SOURCE)
@options.source
@writing.output
@options.together(
    click.option(
        "--verify",
        "steps",
        type=click.IntRange(1),
        is_flag=False,
        flag_value=3,
        metavar="[STEPS]",
        help="Verify it over STEPS calls, 3 if left out, and write it only if all methods could "
        "be verified.",
    ),
    writing.no_verify,
    click.option(
        "--edges",
        is_flag=True,
        help="As --verify, and also at NaN, infinities, and the extreme values of each dtype.",
    ),
    options.runner,
    options.target,
    heading="Verification",
)
@writing.settings
@options.lowering
def command(
    source: str,
    output: Path,
    steps: int | None,
    no_verify: bool,
    edges: bool,
    runner: str | None,
    target: Target | None,
    **lowering: Any,
) -> None:
    """Lower SOURCE to a .pte.

    Plans it as `etdev plan` does, compiles every partition, emits the program, compares it with the
    plan, and runs it. Nothing is written if one of 3 calls departs from PyTorch or crashes, unless
    --no-verify is given. Shows the ops that are left to portable kernels, and why; the last line
    says what was verified, or why it can't be verified here.

    \b
    etdev lower net.py:model -o net.pte
    etdev lower net.py:model -o net.pte --plugin trt,cpu
    etdev lower net.py:model -o net.pte --verify 5
    etdev lower net.py:model -o net.pte --lock etdev.lock --locked
    etdev lower net.py:model -o net.pte --target pi

    Exit codes: 0 when the file is written, 1 for an error, 2 for wrong usage, 130 for Ctrl-C, after
    which the cache keeps the partitions compiled so far.
    """
    if no_verify and (steps or edges or runner):
        raise click.UsageError("give --no-verify, or --verify, --edges and --runner")
    lowering["target"] = target
    writing.check(output, source, **lowering)
    asked: Any = {"steps": steps or 3, "edges": edges, "runner": runner, "target": target}
    asked["strict"] = bool(steps or edges or runner or target)

    def verify(lowered: Lowered, path: Path) -> Verification | None:
        return None if no_verify else lowered.verify(path=path, **asked)

    with working(runs=not no_verify) as say:
        from etdev.cli import sources
        from etdev.runtime.runners import on_target

        facts: list[Any] = []
        if target and not no_verify:
            with say.watch.stage("target", target.triple):
                facts = [each.facts for each in on_target(target, runner)]

        def lower(lowerer: Lowerer) -> Lowered:
            return lowerer.lower(sources.methods(source, say))

        made = writing.write(say, output, lower, verify, facts=facts, **lowering)
    results.report(lambda: LOWERING.stamped(made.document()), made.parts())
    if not (options.given("quiet") or options.given("as_json")):
        complain(tables.stages(made.seconds))
        complain(f"next: {shlex.join(_next(source, output, made.verification))}")


def _next(source: str, output: Path, verification: Verification | None) -> list[str]:
    """Return the command that shows what the user doesn't know yet."""
    if verification is None:
        return ["etdev", "run", str(output), "--check", source]
    if not verification.calls:
        return ["etdev", "check", str(output)]
    return ["etdev", "run", str(output), "--profile"]
