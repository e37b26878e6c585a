"""The demo: lower MiniLM-L6 to a .pte, run it on two sentence pairs, compare with eager PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import minilm
import torch
from rich.console import Console

from etdev.cli import progress
from etdev.errors import EtdevError

PAIRS = [
    ("A man is playing a guitar.", "Someone plays an instrument."),
    ("A man is playing a guitar.", "The stock market fell today."),
]


def main(path: Path) -> None:
    """Lower, run, compare; leaves the .pte behind."""
    with progress.working() as say:
        from etdev import Lowerer
        from etdev.cli import tables
        from etdev.cli.artifact_tables import artifact_report
        from etdev.pte.read import read

        say("model", "MiniLM-L6 with its real weights")
        encoder, example = minilm.model()
        lowered = Lowerer(["cpu"], listener=say).lower(encoder, example)
        lowered.save(path)
        verification = lowered.verify(path=path)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(tables.plan_report(lowered.plan), highlight=False)
    console.print(artifact_report(read(path)), highlight=False)
    console.print(tables.stages_report(lowered.stages.seconds), highlight=False)
    compare_pairs(path, encoder, console)
    for line in tables.verification_lines(verification):
        console.print(line, highlight=False)


def compare_pairs(path: Path, encoder: torch.nn.Module, console: Console) -> None:
    """Print each pair's similarity from the .pte next to eager's, and the largest error."""
    from etdev.cli import tables
    from etdev.runtime.compare import compare
    from etdev.runtime.run import run

    rows = tables.table("pair", "similarity .pte", "eager", "max error", "latency ms")
    worst = 0.0
    for pair in PAIRS:
        tokens = minilm.tokenise(*pair)
        result = run(path, tokens, repeat=5)
        with torch.no_grad():
            expected = encoder(*tokens)
        (difference,) = compare(result.outputs, [expected])
        worst = max(worst, difference.max_error)
        similar = [float(vectors[0] @ vectors[1]) for vectors in (result.outputs[0], expected)]
        rows.add_row(
            " / ".join(pair),
            *(f"{value:.6f}" for value in similar),
            f"{difference.max_error:.1e}",
            f"{result.median_ms:.1f}",
        )
    console.print(rows, highlight=False)
    if not worst < 1e-4:
        raise EtdevError("demo", f"max error {worst:.1e} against eager", "this is a bug in etdev")
    console.print(f"wrote {path}, max error against eager {worst:.1e}", highlight=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
