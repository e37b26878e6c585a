"""The table of decoders: the tokens and logits of each in several orders of plugins, or the reason.

PYTHONPATH=tests python -m support.decoders results.json [--only llama] [--orders cpu]   measures
PYTHONPATH=tests python -m support.decoders results.json --table                          prints

They are measured in another process, which they may end; those in the file are left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.decoders import ARCHITECTURES, LENGTH, decoder
from support.processes import DiedError, Process

ORDERS = {"cpu": ["cpu"], "openvino, cpu": ["openvino,cpu"]}
ORDERS["by method"] = ["prefill=openvino,cpu", "decode=cpu"]
RIVAL = "transformers.exporters"
STEPS = 32
LIMIT_S = 900


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


def run(file: Path, kinds: list[str], orders: list[str]) -> None:
    """Measure the decoders that the file doesn't have yet, and write it after each."""
    found = json.loads(file.read_text()) if file.exists() else {}
    process = Process("support.decoders.__main__:measured", LIMIT_S)
    for kind in kinds:
        for order in [order for order in orders if order not in found.get(kind, {})]:
            try:
                own = process.ask(kind, order)
            except DiedError as error:
                own = {"refused": f"the process {error}"}
            found.setdefault(kind, {})[order] = own
            new = file.with_suffix(".part")
            new.write_text(json.dumps(found, indent=1))
            new.replace(file)
            print(kind, order, {k: v for k, v in own.items() if k != "owned"}, flush=True)
    process.close()


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, and the reasons below it; `-` is not measured."""
    columns = [order for order in (*ORDERS, RIVAL) if any(order in own for own in found.values())]
    yield "| architecture | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    reasons: dict[str, list[str]] = {}
    for kind, own in found.items():
        cells = []
        for order in columns:
            cell = own.get(order, {})
            if "refused" in cell:
                reasons.setdefault(cell["refused"], []).append(kind)
            if "tokens" in cell:
                cells.append(f"{cell['tokens']}, {max(cell['errors']):.0e}, {cell['bytes']} B")
            else:
                cells.append("refused" if "refused" in cell else str(cell.get("bytes", "-")))
        yield f"| {kind} | " + " | ".join(cells) + " |"
    yield ""
    for reason, kinds in reasons.items():
        yield f"- {', '.join(dict.fromkeys(kinds))}: {reason}"


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="*", default=list(ARCHITECTURES))
    parser.add_argument("--orders", nargs="*", default=[*ORDERS, RIVAL])
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print("\n".join(table(json.loads(given.file.read_text()))))
    else:
        run(given.file, given.only, given.orders)


if __name__ == "__main__":
    main()
