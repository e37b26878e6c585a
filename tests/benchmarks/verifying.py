"""`etdev lower` with its verification and with --no-verify, by the clock.

PYTHONPATH=tests python -m benchmarks.verifying [--models minilm-l6]

Both write the same file, in processes of their own and in turn, on a machine that has to be quiet.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import record

ROUNDS = 3
# Verifying may add MOST_S seconds to a lowering of up to LONG_S, and the part MOST to a longer one.
MOST_S, MOST, LONG_S = 1.0, 0.25, 10.0
TESTS = Path(__file__).parents[1]
MODELS = {
    "conv net": f"{TESTS / 'support/models/nets.py'}:conv_net",
    "resnet18": f"{TESTS / 'support/models/nets.py'}:resnet18",
    "bert-12": f"{TESTS / 'benchmarks/lowering.py'}:bert",
    "minilm-l6": f"{TESTS / 'support/models/minilm.py'}:model",
}


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description="what verifying adds to etdev lower")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    rows = [compared(name) for name in parser.parse_args().models]
    promises = [
        record.Bar(f"{row['model']}, seconds more", row["more_s"], bound(row["lower_s"]))
        for row in rows
    ]
    record.save("verifying", {"models": rows}, promises)
    keys = ("model", "lower_s", "verified_s", "more_s", "ratio")
    record.columns("etdev lower, unverified and verified", rows, keys)
    record.show("verifying", promises)


def bound(lower_s: float) -> float:
    return MOST * lower_s if lower_s > LONG_S else MOST_S


def compared(name: str) -> dict[str, Any]:
    """Both sides on one model, in turn."""
    sides = {"lower": ["--no-verify"], "verified": []}
    jobs = {side: partial(lowered, MODELS[name], words) for side, words in sides.items()}
    runs = record.in_turn(name, jobs, ROUNDS)
    without, verified = map(statistics.median, runs.values())
    return {
        "model": name,
        "lower_s": without,
        "verified_s": verified,
        "more_s": verified - without,
        "ratio": verified / without,
        **{f"{side}_runs": own for side, own in runs.items()},
    }


def lowered(source: str, words: Sequence[str]) -> float:
    """Seconds of one command."""
    command = [Path(sys.executable).with_name("etdev"), "lower", source, "--plugin", "cpu"]
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        command += ["--no-cache", "-o", Path(folder) / "net.pte", *words]
        start = time.perf_counter()
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        seconds = time.perf_counter() - start
    # A comparison that did not take place costs nothing.
    assert ("not verified" in done.stdout) == bool(words), done.stdout
    return seconds


if __name__ == "__main__":
    main()
