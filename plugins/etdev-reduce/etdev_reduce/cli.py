"""`etdev reduce` finds the smallest program that still fails, and writes it as a script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.app import Command, Document, Sheet, files, options, report, working
from etdev_reduce.report import is_report

if TYPE_CHECKING:
    from etdev_reduce.reduction import Reduction

REDUCTION = Document("etdev.reduction", 1)
_OUTPUTS = ("repro.py", "repro_etdev.py", "report.md", "model.pt2")


@click.command("reduce", cls=Command, epilog=options.SOURCE)
@click.argument("source")
@click.option("-o", "--output", type=options.FILE, required=True, help="The folder to write to.")
@click.option(
    "--budget", "budget_s", default="10m", show_default=True, type=options.DURATION, metavar="TIME",
    help="Time for the search, such as 90s or 10m; the smallest program so far is written then.",
)  # fmt: skip
@click.option(
    "--partitioner", metavar="MODULE:CLASS",
    help="Reduce what ExecuTorch makes of it with this partitioner, without etdev.",
)  # fmt: skip
@click.option("--inputs", type=options.FILE, help="Inputs of a call that fails, by torch.save.")
@click.option(
    "--tolerance", type=float,
    help="Largest error relative to the largest value of an output, by default 1e-4 for float32.",
)  # fmt: skip
@click.option(
    "--slow", type=click.FloatRange(1.0), default=None, metavar="FACTOR",
    help="Also count it as a failure if portable kernels are this many times as fast.",
)  # fmt: skip
@click.option(
    "--hang", "limit_s", default="2m", show_default=True, type=options.DURATION, metavar="TIME",
    help="Time of a processor after which a program hangs; twice that if it waits.",
)  # fmt: skip
@click.option(
    "--keep-weights", is_flag=True,
    help="Write values of the model to model.pt2 if it doesn't fail with others.",
)  # fmt: skip
@options.force
@options.as_json
@options.lowering
def command(  # noqa: PLR0913 - an argument for each option
    source: str,
    output: Path,
    partitioner: str | None,
    inputs: Path | None,
    slow: float | None,
    keep_weights: bool,
    budget_s: float,
    limit_s: float,
    tolerance: float | None,
    **lowering: Any,
) -> None:
    """Find the smallest program that fails as SOURCE does, and write it.

    A model fails if its values are wrong, if it crashes or hangs, if a compiler or ExecuTorch
    raises an error, if a plugin breaks a promise, or with --slow if it is slow. Leaves out nodes,
    makes sizes smaller and replaces weights by random numbers, as long as it fails in the same way.
    Each program is lowered and run.

    Writes repro.py, a script of torch and ExecuTorch that fails by itself (repro_etdev.py if only
    etdev's flow fails), and report.md for those who can fix it.

    \b
    etdev reduce net.py:model --plugin cpu -o fault
    etdev reduce net.py:model --plugin cpu -o fault --slow 10
    etdev reduce net.py:model -o fault --partitioner my_npu:NpuPartitioner --budget 2m

    Exit codes: 0 when the script is written and fails as it says, 1 for an error, or if nothing
    fails, 130 for Ctrl-C, after which the smallest program so far is written.
    """  # noqa: D301 - click reads the escape
    options.check(source, **lowering)
    paths = [output / name for name in _OUTPUTS]
    if is_again := is_report(output / "report.md"):
        click.get_current_context().with_resource(files.forced(True))
    for path in paths if output.is_dir() else [output]:
        files.check_writable(path)
    with working() as say:
        from etdev.app import EagerMethod, sources
        from etdev_reduce.flows import flows_of
        from etdev_reduce.reduction import reduce
        from etdev_reduce.search import trying

        # It imports while this process exports.
        trying().start()
        methods = sources.methods(source, say)
        result = reduce(
            {name: EagerMethod(method) for name, method in methods.items()},
            flows_of(partitioner, options.arguments(**lowering)),
            budget_s=budget_s,
            tolerance=tolerance,
            slow=slow or 0.0,
            limit_s=limit_s,
            inputs=sources.load_inputs(inputs) if inputs else None,
            tell=lambda text: say("reduce", text),
        )
        say("write", str(output))
        for path in paths if is_again else ():
            path.unlink(missing_ok=True)
        written = result.write(output, keep_weights)
    report(lambda: REDUCTION.stamped(_fields(result, written)), _lines(result, written))
    if result.interrupted:
        raise click.exceptions.Exit(130)


def _fields(result: Reduction, written: Path) -> dict[str, Any]:
    return {
        "script": str(written),
        "title": result.title,
        "failure": str(result.failure),
        "flows": dict(result.flows),
        "nodes": [result.nodes, len(result.left)],
        "trials": result.trials,
        "seconds": result.seconds,
        "finished": result.finished,
    }


def _lines(result: Reduction, written: Path) -> list[Sheet | str]:
    nodes, kept = result.nodes, len(result.left)
    took = f"{result.trials} trials in {result.seconds:.0f} s"
    took += "" if result.finished else ", not finished"
    rows = [[name, what] for name, what in result.flows.items()]
    return [
        f"{result.title}: {result.failure.text}",
        f"{written}: {kept} of {nodes} nodes, {took}",
        Sheet(["flow", "result"], rows),
    ]
