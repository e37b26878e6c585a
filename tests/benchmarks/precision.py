"""What `etdev tune --precision` finds: mixtures against uniform schemes of the same search.

PYTHONPATH=tests python -m benchmarks.precision [--models minilm conv mlp] [--budget 600]
    [--results FILE]     adds to its rows

The calls that judge are neither those that calibrate nor, for the last column, those of the search.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
from etdev_tune.precision.plugin import Precision
from etdev_tune.report import Report, Trial
from examples import crepe, minilm
from models import nets
from models.small import Mixed
from torch import nn

import etdev
from etdev import Lowerer
from etdev.runtime.run import run

RESULTS = Path(__file__).parent / "results/precision.json"
# Words of which sentences are made; which of them are alike is what a metric ranks.
WORDS = (
    ("the cat", "a dog", "my neighbour", "the engineer", "a pilot", "the old king"),
    ("eats", "repairs", "paints", "sells", "forgets", "describes"),
    ("an apple", "the engine", "a small house", "the violin", "his letter", "the northern sea"),
)
CALLS = 16


def conv() -> nets.Model:
    """A random convolutional net."""
    return Mixed.seeded(), (torch.randn(1, 3, 8, 8),)


def mlp() -> nets.Model:
    """A random net of linear layers."""
    torch.manual_seed(0)
    layers = nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 32)
    return nn.Sequential(*layers).eval(), (torch.randn(4, 128),)


MODELS: Mapping[str, Callable[[], Any]] = {
    "minilm": minilm.model,
    "crepe": crepe.model,
    "conv": conv,
    "mlp": mlp,
}


def calls_of(name: str, example: Sequence[torch.Tensor], count: int) -> list[Any]:
    """Calls with random numbers, or with sentences; the same every time."""
    if name == "crepe":
        source = torch.Generator().manual_seed(1)
        return [crepe.tones(1, source) for _ in range(count)]
    if name != "minilm":
        source = torch.Generator().manual_seed(1)
        return [
            tuple(torch.randn(v.shape, generator=source) for v in example) for _ in range(count)
        ]
    chosen = random.Random(1)
    sentences = [" ".join(words) for words in itertools.product(*WORDS)]
    chosen.shuffle(sentences)
    return [minilm.tokenise(*sentences[2 * i : 2 * i + 2]) for i in range(count)]


def rank_correlation(outputs: Sequence[Any], expected: Sequence[Any]) -> float:
    """Spearman's correlation of the similarities of all pairs of sentences with PyTorch's."""
    from scipy.stats import spearmanr

    ranked = []
    for vectors in (torch.cat(list(outputs)), torch.cat(list(expected))):
        upper = torch.triu_indices(len(vectors), len(vectors), 1)
        ranked.append((vectors @ vectors.T)[upper[0], upper[1]])
    return float(spearmanr(*ranked).statistic)


def held_out(path: Path, module: nn.Module, calls: Sequence[Any]) -> float:
    """The largest error of a .pte on calls that the search has not seen."""
    worst = 0.0
    for inputs in calls:
        with torch.no_grad():
            wanted = module(*inputs)
        (got,) = run(path, list(inputs)).outputs
        worst = max(worst, float((got - wanted).abs().max() / wanted.abs().max()))
    return worst


def at_equal_error(report: Report, uniform: Trial) -> Trial:
    """The fastest candidate that is at least as exact as a uniform scheme."""
    ran = [t for t in report.trials if t.error is not None and t.against_untuned]
    exact = [t for t in ran if t.error <= uniform.error]
    return min(exact, key=lambda t: t.against_untuned.value)


def row(name: str, budget_s: float, folder: Path) -> dict[str, Any]:
    """Search one model; each uniform scheme beside the best that is as exact."""
    module, example = MODELS[name]()
    calls = calls_of(name, example, CALLS + 8)
    path = folder / f"{name}.pte"
    report = etdev.tune(
        module,
        example,
        path,
        precision="auto",
        data=calls[:CALLS],
        metric=rank_correlation if name == "minilm" else None,
        plugins=["cpu"],
        budget_s=budget_s,
        store=False,
        listener=lambda *words: print(name, *words, flush=True),
    ).report
    uniform = [t for t in report.trials if t.against_untuned and not t.name.startswith("mixture")]
    rows = []
    for trial in uniform:
        best = at_equal_error(report, trial)
        rows.append(
            {
                "scheme": trial.name,
                "error": trial.error,
                "metric": trial.metric,
                "ms": trial.latency_ms.value,
                "bytes": trial.size_bytes,
                "best as exact": best.name,
                "error of it": best.error,
                "latency of it": best.against_untuned.value / trial.against_untuned.value,
            }
        )
    return {
        "model": name,
        "seconds": report.seconds,
        "finished": report.finished,
        "chosen": report.chosen,
        "verdict": report.verdict,
        "tried": len(report.trials),
        "error of unseen calls": held_out(path, module, calls[CALLS:]),
        "uniform": rows,
        "date": f"{date.today()}",
    }


def regret(folder: Path, limit: float = 2e-2) -> dict[str, Any]:
    """The size that the search finds for a small net, beside that of all combinations."""
    module, example = mlp()
    calls, schemes = calls_of("mlp", example, CALLS), ["8da8w", "8da4w"]
    given = {"precision": schemes, "objective": "size", "tolerance": limit, "store": False}
    path = folder / "searched.pte"
    report = etdev.tune(module, example, path, data=calls, plugins=["cpu"], **given).report
    sizes = {}
    for chosen in itertools.product(("", *schemes), repeat=3):
        layers = [f"{i} = {s}" for i, s in zip((0, 2, 4), chosen, strict=True) if s]
        named = [Precision(layers=layers)] if layers else []
        lowered = Lowerer([*named, "cpu"]).lower(module, example)
        made = lowered.save(folder / "all.pte")
        if held_out(made, module, calls[1::2]) <= limit:
            sizes[", ".join(layers) or "float32"] = made.stat().st_size
    best = min(sizes, key=sizes.__getitem__)
    found = path.stat().st_size
    return {
        "combinations": 3 ** len(chosen),
        "within the limit": len(sizes),
        "tried by the search": len(report.trials),
        "best": best,
        "best bytes": sizes[best],
        "found": report.chosen,
        "found bytes": found,
        "regret": found / sizes[best] - 1,
    }


def main() -> None:
    """Search the models, print a table, and keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--budget", type=float, default=600)
    parser.add_argument("--no-regret", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    kept = json.loads(given.results.read_text()) if given.results.exists() else {"rows": []}

    def save() -> None:
        given.results.write_text(json.dumps(kept, indent=2) + "\n")

    with tempfile.TemporaryDirectory() as name:
        if not given.no_regret:
            kept["regret"] = regret(Path(name))
            print(kept["regret"], flush=True)
            save()
        for model in given.models:
            new = row(model, given.budget, Path(name))
            kept["rows"] = [old for old in kept["rows"] if old["model"] != model] + [new]
            save()
            print(json.dumps(new, indent=2), flush=True)


if __name__ == "__main__":
    main()
