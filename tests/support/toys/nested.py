"""A backend whose delegates are whole programs of ExecuTorch, which its compiler may alter.

`library` builds its C++ half, with which executorch.runtime runs them on portable kernels.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from attrs import frozen
from etdev_cpp import build
from etdev_cpp.wheel import Wheel
from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.pass_base import ExportPass

from etdev import Claim, Group, hookimpl
from etdev.graph import interpreted_copy

SOURCE = Path(__file__).with_suffix(".cpp")
# In the order of nested.cpp.
WHENS = ("always", "size", "above", "multiple", "shrunk", "from call", "value", "reset")


@frozen
class Fault:
    """A fault of the compiler.

    Args:
        alter: Makes the pass that alters a partition.
        when: The calls for which it does; one of `WHENS`.
        number: What `when` compares with.
        input: The name of the partition's input that `when` looks at; empty for the first.
        dim: The dimension of it whose size `when` looks at.
    """

    alter: Callable[[], ExportPass]
    when: str = "always"
    number: int = 0
    input: str = ""
    dim: int = -1


class NestedBackend(BackendDetails):
    """The compiler; without a fault, it alters nothing."""

    fault: ClassVar[Fault | None] = None

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
        fault = NestedBackend.fault or Fault(ExportPass)
        names = [node.name for node in edge_program.graph.find_nodes(op="placeholder")]
        constants = edge_program.graph_signature.inputs_to_parameters.keys()
        constants |= edge_program.graph_signature.inputs_to_buffers.keys()
        constants |= edge_program.graph_signature.inputs_to_lifted_tensor_constants.keys()
        inputs = [name for name in names if name not in constants]
        place = inputs.index(fault.input) if fault.input else 0
        right, wrong = emitted(edge_program, ExportPass()), emitted(edge_program, fault.alter())
        numbers = (WHENS.index(fault.when), fault.number, place, fault.dim, len(right), len(wrong))
        return PreprocessResult(struct.pack("<6q", *numbers) + right + wrong)


def emitted(program: Any, alter: ExportPass) -> bytes:
    """Emit a partition as a program of its own."""
    config = EdgeCompileConfig(_check_ir_validity=False)
    manager = EdgeProgramManager({"forward": interpreted_copy(program)}, compile_config=config)
    return bytes(manager.transform([alter]).to_executorch().buffer)


class Nested:
    """The plugin, which claims all nodes that the runtime has kernels for."""

    etdev_api = 1
    name = "nested"

    @hookimpl
    def claim_nodes(self, program):
        nodes = [n for n in program.graph.nodes if n.op in ("call_function", "get_attr")]
        return Claim("NestedBackend", [Group([*nodes])])

    @hookimpl
    def claim_constants(self, partition):
        return [constant for constant in partition.constants if not constant.mutated]


@contextmanager
def library(folder: Path) -> Iterator[None]:
    """Build the C++ half, which the process that runs programs loads with torch's libraries."""
    wheel, compiler = Wheel.here(), build.Compiler.here()
    made, runtime = folder / "libnested.so", wheel.folder / "lib" / "libexecutorch.so"
    words = [*compiler.words, "-shared", "-fPIC", *wheel.compile_flags(), str(SOURCE), str(runtime)]
    words += [f"-Wl,-rpath,{runtime.parent}", "-o", str(made)]
    subprocess.run(words, check=True, timeout=300)
    torch.ops.load_library(str(made))
    try:
        yield
    finally:
        torch.ops.loaded_libraries.discard(str(made))
