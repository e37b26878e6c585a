"""The writing of a .pte, for each command that lowers a model: options, stages and summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from etdev.cli import lowerers, options, outputs, tables, viewing
from etdev.cli.progress import Display
from etdev.errors import EtdevError, LockError
from etdev.files import check_writable, publish, unseen, write_text
from etdev.pte.embedded_plan import find_ledger
from etdev.pte.read import read
from etdev.report import presenters
from etdev.report.difference import diff
from etdev.report.explanation import Explanation
from etdev.report.holes import holes
from etdev.report.sheet import Sheet
from etdev.schema.structuring import CONVERTER
from etdev.schema.wording import size

if TYPE_CHECKING:
    from etdev.lowered import Lowered
    from etdev.lowerer import Lowerer
    from etdev.schema.plan import Plan
    from etdev.verify.verification import Verification

# Ops on portable kernels that are shown.
_TOP = 5

output = click.option(
    "-o", "--output", type=outputs.Output(), required=True, help="The .pte to write."
)
no_verify = click.option("--no-verify", is_flag=True, help="Write it without running it.")
settings = options.together(
    click.option(
        "--with-ledger/--no-ledger",
        default=True,
        help="Store the plan with all reasons in the .pte (a few KB), for explain and run "
        "--profile, or leave it out.",
    ),
    click.option(
        "--lock",
        "lock_file",
        type=outputs.Output(),
        metavar="FILE",
        help="Record in FILE everything the .pte is made with; --locked alone reads etdev.lock.",
    ),
    click.option(
        "--locked", is_flag=True, help="Write the .pte only if it is the one that the lock records."
    ),
    viewing.options,
    options.as_json,
    options.workers,
    options.all_rows,
)


def check(
    output: Path, source: str | None, *, lock_file: Path | None, locked: bool, **lowering: Any
) -> None:
    """Check the options as far as possible without torch."""
    check_writable(output, ".pte")
    if lock_file and not locked:
        check_writable(lock_file, ".lock")
    known = lock_file or Path("etdev.lock")
    if locked and not known.exists():
        cure = f"write it with etdev lower --lock {known}"
        raise LockError(str(known), "can't be read (No such file or directory)", cure)
    lowerers.check(source, **lowering)
    viewing.check()


@frozen(eq=False)
class Written:
    """A .pte that was written, with how it was made."""

    output: Path
    lowered: Lowered
    verification: Verification | None
    seconds: Mapping[str, float]
    # The plan of the file that it replaced, if that had one.
    before: Plan | None = None

    def parts(self) -> Iterator[Sheet | str]:
        """Yield the size, shares of each method, ops on portable kernels, and verification."""
        lowered, output = self.lowered, self.output
        yield f"{output}: {size(output.stat().st_size)}"
        for method in lowered.plan.methods:
            yield f"{output}: method {method.method}: {tables.shares(method)}"
            lines = (*map(str, holes(method)), *method.caveats)
            yield from (f"{output}: method {method.method}: {line}" for line in lines)
        yield f"{output}: {tables.memory(lowered.plan, read(output))}"
        yield from (f"{output}: {line}" for line in tables.outcomes(lowered.outcomes))
        if self.before and (difference := diff(self.before, lowered.plan)):
            yield f"{output}: since the last one: {presenters.changes(difference)}"
        if options.given("verbose") and (fixed := presenters.fixed(lowered.plan.methods)).rows:
            yield fixed
        missed = presenters.missed(Explanation(lowered.plan))
        if missed.rows:
            yield missed if options.given("every") else missed.first(_TOP, "; --all shows them")
        known = self.verification
        checked = known.lines() if known else ["not verified: --no-verify"]
        yield from (f"{output}: {line}" for line in (*lowered.plan.notes, *checked))

    def document(self) -> dict[str, Any]:
        """Return the same as plain data."""
        lowered = self.lowered
        methods = [
            {"method": m.method, "delegates": len(m.partitions), "owned": m.ledger.owned()}
            | {"fixes": CONVERTER.unstructure(m.fixes)}
            | {"costs": CONVERTER.unstructure(m.ledger.costs())}
            | {"holes": [str(hole) for hole in holes(m)]}
            for m in lowered.plan.methods
        ]
        return {
            "program": str(self.output),
            "size_bytes": self.output.stat().st_size,
            "plugins": [list(plugin) for plugin in lowered.plan.plugins],
            "methods": methods,
            "stages": self.seconds,
            "partitions": CONVERTER.unstructure(lowered.outcomes),
            "verification": CONVERTER.unstructure(self.verification),
        }


def write(
    say: Display,
    output: Path,
    lower: Callable[[Lowerer], Lowered],
    verify: Callable[[Lowered, Path], Verification | None],
    *,
    with_ledger: bool,
    lock_file: Path | None,
    locked: bool,
    facts: Sequence[Mapping[str, str]] = (),
    **lowering: Any,
) -> Written:
    """Lower a model, verify the .pte, and give it its name when all else is written.

    `lower` loads the model, too. `verify` returns None if that is not wanted. A lock has the facts
    of the target's runners. The other arguments are the values of `settings` and of the lowering
    options.
    """
    from etdev.locking import Lock, lock_of, setup_of

    before = _plan_in(output)
    lock_file = lock_file or (Path("etdev.lock") if locked else None)
    lowerer, known = lowerers.lowerer(say, **lowering), None
    lowerer.compilation.fit()
    if lock_file and locked:
        known = Lock.read(lock_file)
        known.check_setup(setup_of(lowerer.compilation, facts), lock_file)
    lowered = lower(lowerer)
    # The .pte and its .ptd files appear when everything else is written.
    with unseen(output) as folder:
        written = lowered.save(folder / output.name, with_ledger=with_ledger)
        if lock_file:
            lock = lock_of(lowerer.compilation, lowered, written, facts)
            if known:
                known.check(lock, lock_file)
        verification = verify(lowered, written)
        seconds = {**say.watch.seconds, **lowered.stages.seconds}
        viewing.write(
            lambda: viewing.Viewed(lowered.plan, output.name, read(written), stages=seconds)
        )
        if lock_file and not known:
            write_text(lock_file, lock.to_json())
        publish((*written.parent.glob("*.ptd"), written), output)
    return Written(output, lowered, verification, seconds, before)


def _plan_in(output: Path) -> Plan | None:
    """Return the plan in a file that will be replaced, if it has one of this version."""
    with suppress(EtdevError):
        return find_ledger(output) if output.exists() else None
    return None
