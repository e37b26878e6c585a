"""`etdev lower` lowers a model to a .pte."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.cli import lowerers, options, results, tables, viewing
from etdev.cli.group import Command
from etdev.cli.progress import complain, console, working
from etdev.files import check_program, check_writable, publish, unseen, write_text
from etdev.schema.documents import LOWERING
from etdev.schema.report import presenters
from etdev.schema.report.explanation import Explanation
from etdev.schema.report.sheet import Sheet, size
from etdev.schema.structuring import CONVERTER
from etdev.schema.tensors import loading, repeats

if TYPE_CHECKING:
    from etdev.lowering.lowered import Lowered
    from etdev.runtime.verification import Verification


# Ops on portable kernels that are shown.
_TOP = 5


@click.command("lower", cls=Command, epilog=options.SOURCE)
@options.source
@click.option("-o", "--output", type=options.FILE, required=True, help="The .pte to write.")
@click.option(
    "--verify",
    "steps",
    type=click.IntRange(1),
    is_flag=False,
    flag_value=3,
    metavar="[STEPS]",
    help="Verify it over STEPS calls, 3 if left out, and write it only if all methods could be "
    "verified.",
)
@click.option("--no-verify", is_flag=True, help="Write it without running it.")
@click.option(
    "--edges",
    is_flag=True,
    help="As --verify, and also at NaN, infinities, and the extreme values of each dtype.",
)
@options.runner
@click.option(
    "--with-ledger",
    is_flag=True,
    help="Store the plan with all reasons in the .pte, for etdev explain.",
)
@click.option(
    "--lock",
    "lock_file",
    type=options.FILE,
    metavar="FILE",
    help="Record in FILE everything the .pte is made with; --locked alone reads etdev.lock.",
)
@click.option(
    "--locked", is_flag=True, help="Write the .pte only if it is the one that the lock records."
)
@viewing.options
@options.as_json
@options.workers
@options.all_rows
@options.lowering
def command(
    source: str,
    output: Path,
    steps: int | None,
    no_verify: bool,
    edges: bool,
    runner: str | None,
    with_ledger: bool,
    lock_file: Path | None,
    locked: bool,
    **lowering: Any,
) -> None:
    """Lower SOURCE to a .pte.

    Plans it as `etdev plan` does, compiles every partition, emits the program, compares it with the
    plan, and runs it. Nothing is written if one of 3 calls departs from PyTorch or crashes, unless
    --no-verify is given. Shows the ops that are left to portable kernels, and why; the last line
    says what was verified, or why it can't be verified here.

    \b
    etdev lower net.py:model -o net.pte
    etdev lower net.py:model -o net.pte --plugin trt --plugin cpu
    etdev lower net.py:model -o net.pte --verify 5
    etdev lower net.py:model -o net.pte --lock etdev.lock --locked

    Exit codes: 0 when the file is written, 1 for an error, 2 for wrong usage, 130 for Ctrl-C, after
    which the cache keeps the partitions compiled so far.
    """
    check_program(output)
    if no_verify and (steps or edges or runner):
        raise click.UsageError("give --no-verify, or --verify, --edges and --runner")
    lowerers.check(source, **lowering)
    viewing.check()
    lock_file = lock_file or (Path("etdev.lock") if locked else None)
    with working(runs=not no_verify) as say:
        from etdev.cli import sources
        from etdev.lowering.locking import Lock, lock_of, setup_of
        from etdev.pte.read import read

        lowerer, known = lowerers.lowerer(say, **lowering), None
        lowerer.compilation.fit()
        if lock_file and locked:
            known = Lock.read(lock_file)
            known.check_setup(setup_of(lowerer.compilation), lock_file)
        elif lock_file:
            check_writable(lock_file)
        lowered = lowerer.lower(sources.methods(source, say))
        # The .pte and its .ptd files appear when everything else is written.
        with unseen(output) as folder:
            written = lowered.save(folder / output.name, with_ledger=with_ledger)
            asked: Any = {"steps": steps or 3, "edges": edges, "runner": runner}
            asked["strict"] = bool(steps or edges or runner)
            verification = None if no_verify else lowered.verify(path=written, **asked)
            if lock_file:
                lock = lock_of(lowerer.compilation, lowered, written)
                if known:
                    known.check(lock, lock_file)
            seconds = {**say.watch.seconds, **lowered.stages.seconds}
            viewing.write(
                lambda: viewing.Viewed(lowered.plan, output.name, read(written), stages=seconds)
            )
            if lock_file and not known:
                write_text(lock_file, lock.to_json())
            publish((*written.parent.glob("*.ptd"), written), output)
    results.report(
        lambda: _document(lowered, output, verification, seconds),
        _parts(lowered, output, verification),
    )
    if not (options.given("quiet") or options.given("as_json")):
        console().print(tables.stages(seconds))
        complain(f"next: {shlex.join(_next(source, output, verification, with_ledger))}")


def _parts(
    lowered: Lowered, output: Path, verification: Verification | None
) -> Iterator[Sheet | str]:
    """Yield the file, the shares of each method, the ops on portable kernels, the verification."""
    yield f"{output}: {size(output.stat().st_size)}"
    for method in lowered.plan.methods:
        yield f"{output}: method {method.method}: {tables.shares(method)}"
        yield from (f"{output}: method {method.method}: {caveat}" for caveat in method.caveats)
    yield from (f"{output}: {line}" for line in tables.outcomes(lowered.outcomes))
    missed = presenters.missed(Explanation(lowered.plan))
    if missed.rows:
        yield missed if options.given("every") else missed.first(_TOP, "; --all shows them")
    plan = lowered.plan
    yield from (f"{output}: {line}" for line in (*loading(plan.state), *repeats(plan.stored_again)))
    checked = tables.verification(verification) if verification else ["not verified: --no-verify"]
    yield from (f"{output}: {line}" for line in checked)


def _next(
    source: str, output: Path, verification: Verification | None, with_ledger: bool
) -> list[str]:
    """Return the command that shows what the user doesn't know yet."""
    if verification is None:
        return ["etdev", "run", str(output), "--check", source]
    if not verification.calls:
        return ["etdev", "check", str(output)]
    command = ["explain", str(output)] if with_ledger else ["run", str(output), "--profile"]
    return ["etdev", *command]


def _document(
    lowered: Lowered, output: Path, verification: Verification | None, seconds: Mapping[str, float]
) -> dict[str, Any]:
    methods = [
        {"method": m.method, "delegates": len(m.partitions), "owned": m.ledger.owned()}
        for m in lowered.plan.methods
    ]
    return LOWERING.stamped(
        {
            "program": str(output),
            "size_bytes": output.stat().st_size,
            "plugins": [list(plugin) for plugin in lowered.plan.plugins],
            "methods": methods,
            "stages": seconds,
            "partitions": CONVERTER.unstructure(lowered.outcomes),
            "verification": CONVERTER.unstructure(verification),
        }
    )
