"""How far each partitioner in ExecuTorch's wheel comes as a plugin; prints the guide's table.

    python tests/support/toys/partitioners.py

A process of its own, since some of them change the process they are imported into.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import executorch.backends.xnnpack.xnnpack_preprocess
import executorch.exir
import torch
from attrs import astuple, define
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec
from executorch.runtime import Runtime
from torch import nn

import etdev
from etdev.errors import EtdevError, first_line

HEADER = "| partitioner | imports | plans | lowers | runs | why not |"
FOLDERS = ("backends", "exir/backend")
# A sane backend for those that leave it to the user.
XNNPACK = "XnnpackBackend"
ARGUMENTS: dict[str, Any] = {
    "AllNodePartitioner": lambda: (XNNPACK, []),
    "AotiPartitioner": lambda: (XNNPACK, []),
    "ConfigerationBasedPartitioner": lambda: (DelegationSpec(XNNPACK, []), _configs()),
    "CudaPartitioner": lambda: ([CompileSpec("method_name", b"forward")],),
    "MetalPartitioner": lambda: ([CompileSpec("method_name", b"forward")],),
    "OpenvinoPartitioner": lambda: ([CompileSpec("device", b"CPU")],),
}
NOT_ASKED = {"QnnPartitioner": "downloads Qualcomm's SDK when it is asked"}


@define
class Row:
    """A line of the table."""

    partitioner: str
    imports: bool = False
    plans: bool = False
    lowers: bool = False
    runs: bool = False
    why_not: str = ""

    def __str__(self) -> str:
        name, *done, why = astuple(self)
        marks = ("yes" if value else "no" for value in done)
        return f"| {' | '.join((name, *marks, why))} |"


class Net(nn.Module):
    """What every backend has: a linear layer and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def discover() -> Iterator[tuple[str, str]]:
    """Module and name of each class in the wheel that descends from Partitioner."""
    wheel = Path(executorch.exir.__file__).parents[1]
    bases: dict[str, tuple[str, list[str]]] = {}
    for folder in FOLDERS:
        for file in sorted((wheel / folder).rglob("*.py")):
            inside = file.relative_to(wheel.parent).with_suffix("").parts
            if any(part.startswith("test") for part in inside) or "Partitioner(" not in (
                text := file.read_text(encoding="utf-8")
            ):
                continue
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef):
                    names = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                    bases[node.name] = (".".join(inside), names)

    def descends(name: str) -> bool:
        return name == "Partitioner" or any(map(descends, bases.get(name, ("", []))[1]))

    for name, (module, _) in sorted(bases.items()):
        if name != "Partitioner" and descends(name):
            yield module, name


def look(module: str, name: str) -> Row:
    """How far one of them comes."""
    row = Row(name)
    try:
        partitioner = getattr(importlib.import_module(module), name)
        row.imports = True
        if name in NOT_ASKED:
            row.why_not = NOT_ASKED[name]
            return row
        plugin = etdev.adapt(partitioner(*ARGUMENTS.get(name, tuple)()), name="adapted")
        _use(plugin, row)
    except Exception as error:
        # The cause is what the partitioner or its backend said.
        row.why_not = first_line(getattr(error, "__cause__", None) or error)
    return row


def rows(names: Iterable[str]) -> dict[str, str]:
    """The rows of some of them, in Markdown."""
    return {name: str(look(module, name)) for module, name in discover() if name in names}


def _use(plugin: Any, row: Row) -> None:
    torch.manual_seed(0)
    model, inputs = Net().eval(), (torch.randn(2, 4),)
    lowerer = etdev.Lowerer([plugin])
    partitions = lowerer.plan(model, inputs).partitions
    if not partitions:
        raise EtdevError("", "takes nothing of the model")
    row.plans = True
    buffer = lowerer.lower(model, inputs).to_executorch().buffer
    row.lowers = True
    backend = partitions[0].backend_id
    if not Runtime.get().backend_registry.is_available(backend):
        row.why_not = f"{backend} is not in this runtime"
        return
    program = Runtime.get().load_program(buffer)
    (output,) = program.load_method("forward").execute(list(inputs))
    torch.testing.assert_close(output, model(*inputs), atol=2e-2, rtol=2e-2)
    row.runs = True


def _configs() -> list[Any]:
    from executorch.backends.xnnpack.partition.config.generic_node_configs import ReLUConfig

    return [ReLUConfig()]


if __name__ == "__main__":
    print(HEADER, *rows([name for _, name in discover()]).values(), sep="\n")
