"""Hold plugins against the contract in this environment, and table the results of several.

python -m suites.compatibility run        # in each environment; with names, these plugins only
python -m suites.compatibility table > ../plugins/COMPATIBILITY.md
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from support.results import by_line

RESULTS = Path(__file__).parent / "results"
# Each plugin, and each ExecuTorch partitioner that `etdev.adapt` makes one of.
PLUGINS = {
    "etdev-cpu": "etdev_cpu.plugin:CpuPlugin",
    "XnnpackPartitioner": "executorch.backends.xnnpack.partition.xnnpack_partitioner:",
    "etdev-openvino": "etdev_openvino.plugin:OpenVinoPlugin",
    "etdev-cuda": "etdev_cuda.plugin:CudaPlugin",
    "etdev-trt": "etdev_trt.plugin:TrtPlugin",
}
HEAD = """\
# Which versions were tried

The conformance kit (`etdev.testing`) on each plugin, and on a partitioner of ExecuTorch that
`etdev.adapt` made one. A check is skipped where this machine has no GPU, or the plugin has none of
what it is about; the JSON of each run, in `tests/suites/compatibility/results`, says why.
`PYTHONPATH=tests python -m suites.compatibility table` makes this page of them.
"""


def make(name: str) -> object:
    """Make a plugin."""
    import etdev

    module, _, kind = PLUGINS[name].partition(":")
    made = getattr(importlib.import_module(module), kind or name)()
    return made if kind else etdev.adapt(made, name="xnnpack")


def run(names: list[str]) -> None:
    """Write the results of some plugins in this environment."""
    from etdev.testing import Requirements
    from etdev.testing import run as check

    versions = {name: importlib.metadata.version(name) for name in ("executorch", "torch")}
    versions["torch"] = versions["torch"].partition("+")[0]
    for name in names or PLUGINS:
        rounds = {"tolerance": 1e-2, "same_bytes": False} if "openvino" in name else {}
        board = check(partial(make, name), Requirements(**rounds, reasons=name != "etdev-trt"))
        document = {**versions, "name": name, **json.loads(board.to_json())}
        file = f"{name}-executorch{versions['executorch']}-torch{versions['torch']}.json"
        (RESULTS / file).write_text(by_line(document, 2) + "\n")
        print(file, board.badge, *board.broken, flush=True)


def table() -> str:
    """Return the results as Markdown."""
    found = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]
    columns = sorted({(d["executorch"], d["torch"]) for d in found})
    known = {(d["name"], d["executorch"], d["torch"]): d for d in found}
    rows = [["", *(f"ExecuTorch {one}, torch {two}" for one, two in columns)]]
    rows.append(["---"] * len(rows[0]))
    for name in PLUGINS:
        rows.append([name, *(_cell(known.get((name, *column))) for column in columns)])
    return HEAD + "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(document: Any) -> str:
    return ", ".join(_parts(document)) if document else "not tried"


def _parts(document: Any) -> Iterator[str]:
    outcomes = [result["outcome"] for result in document["results"]]
    yield f"{outcomes.count('kept')} kept"
    if skipped := outcomes.count("skipped"):
        yield f"{skipped} skipped"
    if broken := [r["check"] for r in document["results"] if r["outcome"] == "broken"]:
        yield f"**broken: {', '.join(broken)}**"


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        print(table(), end="")
    else:
        run(sys.argv[2:])
