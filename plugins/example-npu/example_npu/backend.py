"""The compiler of ExampleNpuBackend: from a partition to the bytes that the C++ half reads.

All numbers are little-endian. A payload is the magic `NPU1` and unsigned 32-bit integers: the core,
the number of values and the elements of each, the numbers of inputs and outputs with their indices,
the number of ops. An op is a code, the indices of its source and target, the size of a row of its
source and of its target, whether it has a bias, and then its weight and bias as float32.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast

from executorch.backends.transforms.utils import get_param_tensor, is_param_node
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult

from etdev.graph import op_name
from example_npu.plugin import LINEAR, MAGIC

if TYPE_CHECKING:
    import torch
    from executorch.exir.backend.compile_spec_schema import CompileSpec
    from torch.export import ExportedProgram
    from torch.fx import Node


class ExampleNpuBackend(BackendDetails):  # type: ignore[misc]
    """The compiler, which ExecuTorch finds by the name of this class."""

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Compile one partition; the program is this function's to change."""
        specs = {spec.key: spec.value.decode() for spec in compile_specs}
        core = int(specs["etdev_device"].removeprefix("npu:"))
        nodes = list(edge_program.graph.nodes)
        # The constants are placeholders, too; their values go into the ops that read them.
        inputs = [n for n in nodes if n.op == "placeholder" and not is_param_node(edge_program, n)]
        calls = [node for node in nodes if node.op == "call_function"]
        (output,) = (node for node in nodes if node.op == "output")
        index = {node: number for number, node in enumerate([*inputs, *calls])}
        words = [core, len(index), *(node.meta["val"].numel() for node in index)]
        for ends in (inputs, output.args[0]):
            words += [len(ends), *(index[node] for node in ends)]
        parts = [MAGIC, _packed(*words, len(calls))]
        parts += [_op(edge_program, node, index) for node in calls]
        return PreprocessResult(processed_bytes=b"".join(parts))


def _op(program: ExportedProgram, node: Any, index: dict[Node, int]) -> bytes:
    source = node.args[0]
    place = index[source], index[node]
    if op_name(node) != LINEAR:
        return _packed(1, *place, 1, 1, 0)
    weight, *bias = (_constant(program, value) for value in node.args[1:] if value is not None)
    rows, columns = weight.shape
    head = _packed(0, *place, columns, rows, len(bias))
    return head + b"".join(
        value.contiguous().numpy().astype("<f4").tobytes() for value in (weight, *bias)
    )


def _constant(program: ExportedProgram, node: Node) -> torch.Tensor:
    """Return the value of a weight, wherever the program keeps it."""
    value = get_param_tensor(program, node)
    assert value is not None
    return cast("torch.Tensor", value.detach())


def _packed(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)
