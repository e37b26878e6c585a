"""Peak memory of lowering a large model, against ExecuTorch's own; each side in a process alone.

PYTHONPATH=tests python -m benchmarks.memory [--layers 19]        19 layers have a billion weights
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from benchmarks import record
from benchmarks.chain import Null, NullPartitioner
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from support.models import nets
from support.processes import apart
from torch.export import ExportedProgram

from etdev import Lowerer

TOKENS = 16
# Peak of etdev to ExecuTorch's, with what differs from run to run.
MOST = 1.02
# Weights of the default size, which takes a minute and 6 GB.
LAYERS = 4


def llama(layers: int) -> nets.Model:
    """A random Llama of 2048 in bfloat16: 131 million weights, and 47 million a layer."""
    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "vocab_size": 32000}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8}
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = nets.llama_of(layers, TOKENS, dtype="bfloat16", **sizes, **heads)
    finally:
        torch.set_default_dtype(torch.float32)
    return nets.Only(model, "logits", use_cache=False), (torch.randint(0, 32000, (1, TOKENS)),)


def etdev(plugin: object) -> Callable[[ExportedProgram, Path], None]:
    """Lower with one plugin, and write the .pte."""

    def run(program: ExportedProgram, path: Path) -> None:
        Lowerer([plugin]).lower(program).save(path)

    return run


def upstream(partitioner: Any, kept: Any = ()) -> Callable[[ExportedProgram, Path], None]:
    """Lower with ExecuTorch alone, and write the .pte."""

    def run(program: ExportedProgram, path: Path) -> None:
        config = EdgeCompileConfig(preserve_ops=list(kept))
        manager = to_edge_transform_and_lower(
            program, partitioner=[partitioner], compile_config=config
        )
        with path.open("wb") as file:
            manager.to_executorch().write_to_file(file)

    return run


SIDES: Mapping[str, Callable[[], Callable[[ExportedProgram, Path], None]]] = {
    "cpu, etdev": lambda: etdev("cpu"),
    "cpu, upstream": lambda: upstream(XnnpackPartitioner()),
    "null, etdev": lambda: etdev(Null()),
    "null, upstream": lambda: upstream(NullPartitioner()),
}


def measured(side: str, layers: int) -> dict[str, Any]:
    """Lower in this process; MiB before the model, after exporting it, and at the end."""
    record.quiet()
    lower, start = SIDES[side](), record.peak_mb()
    with torch.no_grad():
        model, inputs = llama(layers)
        program = torch.export.export(model, inputs)
    weights = sum(value.nbytes for value in program.state_dict.values()) / 2**20
    exported = record.peak_mb()
    del model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "llama.pte"
        took, _ = record.clock(lambda: lower(program, path))
        size = path.stat().st_size
    return {
        "side": side,
        "weights": weights,
        "start": start,
        "exported": exported,
        "peak": record.peak_mb(),
        "pte": size / 2**20,
        "cpu_s": took.cpu_s,
    }


def excess(row: Mapping[str, Any]) -> float:
    """Memory beside what the imports take and the model's own weights, in sizes of the weights."""
    return float((row["peak"] - row["start"]) / row["weights"] - 1)


def main() -> None:
    """Measure every side, print the table, keep it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=LAYERS)
    options = parser.parse_args()
    rows = {}
    for side in SIDES:
        record.console.print(f"{side}: {options.layers} layers ...")
        rows[side] = apart("benchmarks.memory:measured", side, options.layers)
    bars = []
    for what in ("cpu", "null"):
        ours, theirs = rows[f"{what}, etdev"], rows[f"{what}, upstream"]
        ratio = ours["peak"] / theirs["peak"]
        bars.append(record.Bar(f"{what}, peak of upstream's", ratio, MOST))
        bars.append(record.Bar(f"{what}, excess in weights", excess(ours), 2.0))
    record.save("memory", {"layers": options.layers, "sides": list(rows.values())}, bars)
    record.columns(
        "memory in MiB", [{**row, "excess / weights": excess(row)} for row in rows.values()]
    )
    record.show("memory", bars)


if __name__ == "__main__":
    main()
