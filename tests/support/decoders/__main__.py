"""The table of decoders: the tokens and logits of each in several orders of plugins, or the reason.

PYTHONPATH=tests python -m support.decoders [--only llama] [--orders cpu] [--minutes 60]   measures
PYTHONPATH=tests python -m support.decoders --page                                         writes it

Each cell is measured in another process, which it may end, and kept in
tests/benchmarks/results/decoders.json with the last commit of the code. Cells of this commit are
left out, so it goes on where it was stopped; those of other commits are measured again. `--page`
writes plugins/etdev-llm/DECODERS.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from support.decoders import ARCHITECTURES, LENGTH, decoder
from support.processes import DiedError, Process
from support.results import by_line

ORDERS = {"cpu": ["cpu"], "openvino, cpu": ["openvino,cpu"]}
ORDERS["by method"] = ["prefill=openvino,cpu", "decode=cpu"]
RIVAL, EARLIER = "transformers.exporters", "earlier commits"
COLUMNS = (*ORDERS, RIVAL)
STEPS = 32
LIMIT_S = 900
TESTS = Path(__file__).parents[2]
RESULTS = TESTS / "benchmarks/results/decoders.json"
PAGE = TESTS.parent / "plugins/etdev-llm/DECODERS.md"
# What decides the bytes and values of a .pte.
CODE = ("etdev", "registry.toml", ":(glob)plugins/*/etdev_*/**")
INTRODUCTION = """\
# Decoders of transformers, lowered by etdev-llm

Small configurations with random weights, two layers each: `PYTHONPATH=tests python -m \
support.decoders` measures them, and `--page` writes this page. Each cell has the equal tokens, \
the largest error of logits and cache relative to the largest value, and the size of the `.pte`. \
Prompts have 1 and 7 tokens, and as many as leave room for {steps} steps in a cache of {length}; \
the last one fills the cache. "by method" is prefill=openvino,cpu and decode=cpu. The last column \
has the bytes of the two files of transformers' own exporter, whose logits are those of PyTorch, \
or why it fails. The runtime is ExecuTorch's in Python. {made}
"""


def measured(kind: str, order: str) -> dict[str, Any]:
    """Return what a decoder gives in an order."""
    import torch

    torch.set_num_threads(1)
    try:
        model = decoder(kind)
        return exported(model) if order == RIVAL else lowered(model, order)
    except Exception as error:
        text = (str(error).strip() or "no text").splitlines()[0][:160]
        return {"refused": f"{type(error).__name__}: {text}"}


def lowered(model: Any, order: str) -> dict[str, Any]:
    """Lower a decoder, and compare generations of its .pte with eager PyTorch."""
    from etdev_llm import generation
    from etdev_llm.comparison import Comparison, generated, prompts, replayed
    from etdev_llm.export import asked

    from etdev import Lowerer
    from etdev.runtime.runners import PYTHON

    made = generation(model, LENGTH)
    one, seven, longest, _ = prompts(model, LENGTH)
    few = longest[: LENGTH - STEPS + 1]
    wanted = [step for prompt in (one, seven, few) for step in generated(model, prompt, STEPS)]
    wanted += generated(model, longest, 1)
    names, limits = asked(ORDERS[order])
    result = Lowerer(names, limits=limits).lower(made.methods, settings=made.settings)
    done = Comparison(type(model).__name__)
    with tempfile.TemporaryDirectory() as folder:
        path = result.save(Path(folder) / "net.pte")
        found, cache = replayed(path, wanted, PYTHON)
        done.compare(found, wanted)
        done.compare_cache(model, wanted, cache)
        size = path.stat().st_size
    owned = {method.method: method.ledger.owned() for method in result.plan.methods}
    tokens, errors = f"{done.equal} of {len(done.errors)}", (max(done.errors), done.cache_error)
    return {"tokens": tokens, "errors": errors, "bytes": size, "owned": owned}


def exported(model: Any) -> dict[str, Any]:
    """Export a decoder with transformers' own exporter, a file for each of two methods."""
    import torch

    from support.decoders import rivals

    ids = torch.arange(1, 8)[None]
    programs = rivals.by_exporter(model, ids, LENGTH)
    with tempfile.TemporaryDirectory() as folder:
        size = rivals.saved(programs, Path(folder))
    rivals.check(programs, model, ids, 1e-4)
    return {"bytes": size}


def origin(order: str) -> str:
    """Return what a cell depends on: versions, or the last commit that changed etdev's code.

    That has a `+` if the code was changed since.
    """
    if order == RIVAL:
        from importlib.metadata import version

        return ", ".join(
            f"{name} {version(name)}" for name in ("transformers", "torch", "executorch")
        )

    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words, "--", *CODE], cwd=TESTS.parent, text=True)

    return git("log", "-1", "--format=%h").strip() + ("+" if git("status", "--porcelain") else "")


def run(kinds: list[str], orders: list[str], minutes: float) -> None:
    """Measure the cells of another origin, and keep each."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    origins, end = {order: origin(order) for order in orders}, time.monotonic() + 60 * minutes
    process = Process("support.decoders.__main__:measured", LIMIT_S)
    for order, kind in product(orders, kinds):
        own = found.setdefault(kind, {})
        if own.get(order, {}).get("of") == origins[order] or time.monotonic() > end:
            continue
        try:
            cell = process.ask(kind, order)
        except DiedError as error:
            cell = {"refused": f"the process {error}"}
        own[order] = {**cell, "of": origins[order]}
        RESULTS.write_text(by_line(found, 2) + "\n")
        print(kind, order, {k: v for k, v in cell.items() if k != "owned"}, flush=True)
    process.close()


def page(found: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of the page: how it was measured, the table, and the reasons below it."""
    cells = [(order, cell) for own in found.values() for order, cell in own.items()]
    commits = Counter(cell["of"] for order, cell in cells if order != RIVAL).most_common()
    told = ", ".join(f"{count} of {commit}" for commit, count in commits)
    # Cells of before commits were kept may still be the most.
    most = next(commit for commit, _ in commits if commit != EARLIER)
    made = f"Cells by the last commit of etdev's code: {told}; `*` marks those not of {most}. "
    made += f"Versions are {origin(RIVAL)}."
    known = {most, origin(RIVAL)}
    missing = len(ARCHITECTURES) * len(COLUMNS) - len(cells)
    made += f" {missing} cells, `-`, were not measured." if missing else ""
    yield INTRODUCTION.format(steps=STEPS, length=LENGTH, made=made)
    yield "| architecture | " + " | ".join(COLUMNS) + " |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    reasons: dict[str, list[str]] = {}
    for kind, own in found.items():
        texts = []
        for cell in (own.get(order, {}) for order in COLUMNS):
            if "refused" in cell:
                reasons.setdefault(cell["refused"], []).append(kind)
            mark = "*" if cell.get("of", most) not in known else ""
            if "tokens" in cell:
                text = f"{cell['tokens']}, {max(cell['errors']):.0e}, {cell['bytes']} B"
            else:
                text = "refused" if "refused" in cell else str(cell.get("bytes", "-"))
            texts.append(text + mark)
        yield f"| {kind} | " + " | ".join(texts) + " |"
    yield ""
    for reason, kinds in reasons.items():
        yield f"- {', '.join(dict.fromkeys(kinds))}: {reason}"


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(ARCHITECTURES), choices=ARCHITECTURES)
    parser.add_argument("--orders", nargs="*", default=list(COLUMNS), choices=COLUMNS)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no cell after this")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text("\n".join(page(json.loads(RESULTS.read_text()))) + "\n")
    else:
        run(given.only, given.orders, given.minutes)


if __name__ == "__main__":
    main()
