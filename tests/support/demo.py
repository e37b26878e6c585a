"""The demo: lower MiniLM-L6 to a .pte, run it on two sentence pairs, compare with eager PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from etdev.cli import progress, results
from etdev.errors import EtdevError
from etdev.report.sheet import Sheet
from support.models import minilm

PAIRS = [
    ("A man is playing a guitar.", "Someone plays an instrument."),
    ("A man is playing a guitar.", "The stock market fell today."),
]


def main(path: Path) -> None:
    """Lower, run, compare; leaves the .pte behind."""
    with progress.working(runs=True) as say:
        from etdev import Lowerer
        from etdev.cli import tables
        from etdev.pte.read import read
        from etdev.report import presenters

        say("model", "MiniLM-L6 with its real weights")
        encoder, example = minilm.model()
        lowered = Lowerer(["cpu"], listener=say).lower(encoder, example)
        lowered.save(path)
        verification = lowered.verify(path=path)
    results.show(presenters.sheets(lowered.plan))
    results.show([*tables.artifact(read(path)), tables.stages(lowered.stages.seconds)])
    compare_pairs(path, encoder)
    results.show(verification.lines())


def compare_pairs(path: Path, encoder: torch.nn.Module) -> None:
    """Print each pair's similarity from the .pte next to eager's, and the largest error."""
    from etdev.runtime.run import run
    from etdev.verify.output_error import compare

    columns = ("pair", "similarity .pte", "eager", "max error", "latency ms")
    rows = []
    worst = 0.0
    for pair in PAIRS:
        tokens = minilm.tokenise(*pair)
        result = run(path, tokens, repeat=5)
        with torch.no_grad():
            expected = encoder(*tokens)
        (difference,) = compare(result.outputs, [expected])
        worst = max(worst, difference.max_error)
        similar = [float(vectors[0] @ vectors[1]) for vectors in (result.outputs[0], expected)]
        numbers = (f"{difference.max_error:.1e}", f"{result.median_ms:.1f}")
        rows.append((" / ".join(pair), *(f"{value:.6f}" for value in similar), *numbers))
    results.show([Sheet(columns, rows)])
    if not worst < 1e-4:
        raise EtdevError("demo", f"max error {worst:.1e} against eager", "this is a bug in etdev")
    results.line(f"wrote {path}, max error against eager {worst:.1e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
