"""What `etdev tune --precision` finds: mixed configurations against uniform schemes.

PYTHONPATH=tests python -m benchmarks.precision [--models minilm crepe conv mlp] [--budget 600]
    [--results FILE]     adds to its rows

All errors and latencies are of calls that the search has not seen, measured side by side after it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import torch
from attrs import evolve
from etdev_tune.builder import Build, Builder
from etdev_tune.candidate import Candidate
from etdev_tune.cases import cases_of
from etdev_tune.exchange import Policy
from etdev_tune.measurer import Measurer
from etdev_tune.metric import Metric
from etdev_tune.precision.plugin import Precision
from etdev_tune.record import LATENCY, Record
from etdev_tune.report import Estimate, Report, Trial
from etdev_tune.runners import Local
from etdev_tune.store import Store
from support.models import crepe, minilm, nets
from support.results import by_line
from torch import nn

import etdev
from etdev import Lowerer
from etdev.app import EagerMethod, Setup
from etdev.runtime.run import run

RESULTS = Path(__file__).parent / "results/precision.json"
# Words of which sentences are made; which of them are alike is what a metric ranks.
WORDS = (
    ("the cat", "a dog", "my neighbour", "the engineer", "a pilot", "the old king"),
    ("eats", "repairs", "paints", "sells", "forgets", "describes"),
    ("an apple", "the engine", "a small house", "the violin", "his letter", "the northern sea"),
)
# Calls of the search, of which half calibrate, and calls that judge what it found.
CALLS, UNSEEN = 32, 16
# Rounds in which all are measured on unseen calls.
ROUNDS = 7
# Factors up to which errors, sizes and latencies are equal; the latter besides their intervals.
SAME_ERROR, SAME_SIZE, SAME_LATENCY = 1.05, 1.01, 1.05


def conv() -> nets.Model:
    """A random convolutional net."""
    torch.manual_seed(0)
    layers = [
        *(nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU()),
        *(nn.Conv2d(64, 128, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()),
        *(nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 10)),
    ]
    return nn.Sequential(*layers).eval(), (torch.randn(1, 3, 64, 64),)


def mlp() -> nets.Model:
    """A random net of linear layers."""
    torch.manual_seed(0)
    layers = nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.GELU(), nn.Linear(512, 64)
    return nn.Sequential(*layers).eval(), (torch.randn(4, 512),)


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


class Judge:
    """Candidates of a search, measured side by side on calls that the search has not seen."""

    def __init__(self, report: Report, builder: Builder, calls: Sequence[Any], score: Any) -> None:
        trials = [t for t in report.trials if t.against_untuned and not t.same_as]
        chosen = [t for t in trials if t.front or is_uniform(t) or t.name == report.chosen]
        (case,) = cases_of(builder.methods, list(calls), least=0)
        case = evolve(case, timed=(0, 1), metric=Metric(score) if score else None)
        with closing(Local()) as target:
            given = [case], Policy(), Store(None), lambda *_: None
            measurer = Measurer(target, target.fingerprint(), *given)
            self.records: dict[str, Record] = {}
            for t in chosen:
                build = builder.build(Candidate(t.name, t.plugins, t.options, t.pins))
                assert isinstance(build, Build)
                self.records[t.name] = measurer.record(build)
            for number in range(ROUNDS):
                measurer.round(list(self.records.values()), "judge", number)
        self.uniform = [t.name for t in chosen if is_uniform(t)]
        self.front = [t.name for t in chosen if t.front]

    def ratio(self, name: str, other: str) -> Estimate:
        """The latency of a candidate as a multiple of another one's, over rounds of both."""
        if self.records[name] is self.records[other]:
            return Estimate(1.0, 1.0, 1.0)
        found = self.records[name].against(self.records[other], LATENCY)
        assert found
        return found

    def is_as_good(self, name: str, other: str) -> bool:
        """Return True if a candidate is as exact, as small and, up to noise, as fast."""
        own, theirs = self.records[name], self.records[other]
        small = own.build.size_bytes <= SAME_SIZE * theirs.build.size_bytes
        exact = own.error <= SAME_ERROR * theirs.error
        return exact and small and self.ratio(name, other).low <= SAME_LATENCY

    def at_equal_error(self, name: str) -> str:
        """The fastest on the front that is at least as exact; itself if there is none."""
        error = SAME_ERROR * self.records[name].error
        exact = [own for own in self.front if self.records[own].error <= error]
        return min(exact, key=lambda own: self.ratio(own, name).value, default=name)

    def verdict(self) -> dict[str, Any]:
        """Compare the front with the uniform schemes, as sets of points.

        The front dominates them if it has a point that is as good as each of them, and a mixed
        configuration than which none of them is as good.
        """
        behind = [u for u in self.uniform if not any(self.is_as_good(f, u) for f in self.front)]
        mixed = [f for f in self.front if f not in self.uniform]
        new = [f for f in mixed if not any(self.is_as_good(u, f) for u in self.uniform)]
        faster = [u for u in self.uniform if self.ratio(self.at_equal_error(u), u).high < 1]
        return {
            "dominates": bool(new) and not behind,
            "schemes that beat the front": behind,
            "schemes that the front is faster than, at their error": faster,
            "mixed configurations that no scheme is as good as": len(new),
        }

    def row(self, name: str) -> dict[str, Any]:
        """The figures of a candidate, and of the best that is as exact."""
        record, best = self.records[name], self.at_equal_error(name)
        latency, ratio = record.latency, self.ratio(best, name)
        assert latency
        return {
            "name": name,
            "error": record.error,
            "metric": record.metric,
            "ms": latency.value,
            "bytes": record.build.size_bytes,
            "best as exact": best,
            "latency of it": [ratio.value, ratio.low, ratio.high],
            "size of it": self.records[best].build.size_bytes / record.build.size_bytes,
        }


def is_uniform(trial: Trial) -> bool:
    """Return True for float32 and for candidates with one scheme."""
    return not trial.name.startswith("mixed")


def held_out(path: Path, module: nn.Module, calls: Sequence[Any]) -> float:
    """The largest error of a .pte on calls that the search has not seen."""
    worst = 0.0
    for inputs in calls:
        with torch.no_grad():
            wanted = module(*inputs)
        (got,) = run(path, list(inputs)).outputs
        worst = max(worst, float((got - wanted).abs().max() / wanted.abs().max()))
    return worst


def row(name: str, budget_s: float, folder: Path, plugins: Sequence[str]) -> dict[str, Any]:
    """Search one model, and judge what it found on other calls."""
    module, example = MODELS[name]()
    calls = calls_of(name, example, CALLS + UNSEEN)
    score = rank_correlation if name == "minilm" else None
    lowering = {"plugins": list(plugins)}
    report = etdev.tune(
        module,
        example,
        folder / f"{name}.pte",
        precision="auto",
        data=calls[:CALLS],
        metric=score,
        budget_s=budget_s,
        store=False,
        listener=lambda *words: print(name, *words, flush=True),
        **lowering,
    ).report
    builder = Builder(EagerMethod.of_model(module, example), Setup.of(**lowering), folder / name)
    judge = Judge(report, builder, calls[CALLS:], score)
    return {
        "model": name,
        "seconds": report.seconds,
        "finished": report.finished,
        "tried": len(report.trials),
        "chosen": report.chosen,
        "verdict": report.verdict,
        "error of unseen calls": judge.records[report.chosen].error,
        **judge.verdict(),
        "uniform": [judge.row(own) for own in judge.uniform],
        "mixed": [judge.row(own) for own in judge.front if own not in judge.uniform],
        "plugins": list(plugins),
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
    parser.add_argument("--plugins", nargs="*", default=["cpu"])
    parser.add_argument("--no-regret", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    kept = json.loads(given.results.read_text()) if given.results.exists() else {"rows": []}

    def save() -> None:
        given.results.write_text(by_line(kept, 2) + "\n")

    with tempfile.TemporaryDirectory() as name:
        if not given.no_regret:
            kept["regret"] = regret(Path(name))
            print(kept["regret"], flush=True)
            save()
        for model in given.models:
            new = row(model, given.budget, Path(name), given.plugins)
            kept["rows"] = [old for old in kept["rows"] if old["model"] != model] + [new]
            kept["models that the front dominates"] = [
                own["model"] for own in kept["rows"] if own.get("dominates")
            ]
            save()
            print(json.dumps(new, indent=2), flush=True)


if __name__ == "__main__":
    main()
