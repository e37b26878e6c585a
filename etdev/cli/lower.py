"""`etdev lower`: a model becomes a .pte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.cli import lowerers, options, results, tables, viewing
from etdev.cli.group import Command
from etdev.cli.locking import Locking
from etdev.cli.progress import console, working
from etdev.cli.verbosity import Verbosity
from etdev.files import check_program, publish, unseen
from etdev.schema.documents import CONVERTER, LOWERING

if TYPE_CHECKING:
    from etdev.lowering.lowered import Lowered
    from etdev.runtime.verify import Verification


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
    help="Write it only if its outputs are PyTorch's over STEPS calls, 3 if left out. A "
    "method with a backend that the runtime here does not have is named, and written unverified.",
)
@options.edges
@click.option(
    "--with-ledger", is_flag=True, help="Put the plan with all reasons into it, for etdev explain."
)
@click.option(
    "--lock",
    "lock_file",
    type=options.FILE,
    metavar="FILE",
    help="Record there what the .pte was made with; etdev.lock for --locked alone.",
)
@click.option("--locked", is_flag=True, help="Write the .pte only if it is the one of the lock.")
@viewing.options
@options.as_json
@options.workers
@options.lowering
def command(
    source: str,
    output: Path,
    steps: int | None,
    edges: bool,
    with_ledger: bool,
    lock_file: Path | None,
    locked: bool,
    views: Mapping[str, Path],
    as_json: bool,
    **lowering: Any,
) -> None:
    """Lower SOURCE to a .pte.

    Plans it as `etdev plan` does, compiles every partition, emits the program, and compares it with
    the plan before the file appears.

    \b
    etdev lower net.py:model -o net.pte
    etdev lower net.py:model -o net.pte --plugin trt --plugin cpu
    etdev lower net.py:model -o net.pte --verify 5
    etdev lower net.py:model -o net.pte --html net.html
    etdev lower net.py:model -o net.pte --lock etdev.lock --locked

    Exit codes: 0 when the file is written, 1 for an error, 2 for wrong usage, 130 for Ctrl-C, after
    which the cache has what was compiled.
    """
    check_program(output)
    if edges and steps is None:
        raise click.UsageError("--edges needs --verify")
    lowerers.check(source, **lowering)
    viewing.check(views)
    lock = Locking(lock_file or (Path("etdev.lock") if locked else None), locked)
    with working(options.debugging()) as say:
        from etdev.cli import sources

        lowerer = lowerers.lowerer(say, **lowering)
        lock.check_setup(lowerer)
        lowered = lowerer.lower(sources.methods(source, say))
        with _out_of_sight(lowered, output, with_ledger) as written:
            verification = lowered.verify(path=written, steps=steps, edges=edges) if steps else None
            lock.check(lowerer, lowered, written)
            # Before the .pte appears, so that one that can't be written leaves the old .pte.
            if views:
                viewing.write(views, viewing.of_lowered(written, lowered))
            lock.write()
    if as_json:
        results.document(_document(lowered, output, verification))
        return
    for method in lowered.plan.methods:
        owners = ", ".join(f"{name} {count}" for name, count in method.ledger.owned().items())
        delegates = len(method.partitions)
        results.line(f"{output}: method {method.method}, {delegates} delegates, nodes: {owners}")
    for line in tables.outcome_lines(lowered.outcomes):
        results.line(f"{output}: {line}")
    results.line(f"{output}: {tables.size(output.stat().st_size)}")
    for line in tables.verification_lines(verification) if verification else ():
        results.line(f"{output}: {line}")
    if not Verbosity.chosen().quiet:
        console().print(tables.stages_report(lowered.stages.seconds))


def _document(lowered: Lowered, output: Path, verification: Verification | None) -> dict[str, Any]:
    methods = [
        {
            "method": method.method,
            "delegates": len(method.partitions),
            "owned": method.ledger.owned(),
        }
        for method in lowered.plan.methods
    ]
    return LOWERING.stamped(
        {
            "program": str(output),
            "size_bytes": output.stat().st_size,
            "plugins": [list(plugin) for plugin in lowered.plan.plugins],
            "methods": methods,
            "stages": lowered.stages.seconds,
            "partitions": [CONVERTER.unstructure(outcome) for outcome in lowered.outcomes],
            "verification": tables.verification_fields(verification),
        }
    )


@contextmanager
def _out_of_sight(lowered: Lowered, output: Path, with_ledger: bool) -> Iterator[Path]:
    """Write the .pte and its .ptd files where they aren't seen until all is well with them."""
    with unseen(output) as folder:
        written = lowered.save(folder / output.name, with_ledger=with_ledger)
        yield written
        publish((*written.parent.glob("*.ptd"), written), output)
