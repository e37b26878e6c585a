"""The recorder: what eager PyTorch computes for single nodes of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node


def recorded(
    program: ExportedProgram, names: set[str], inputs: Sequence[Any], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a program in PyTorch and record the values of some nodes.

    Args:
        program: Any dialect; it is not changed.
        names: The nodes.
        inputs: Inputs of the method, flat.
        state: Values of its buffers before the call, by name; those of the program where missing.
    """
    recorder = _Recorder(program, names)
    with torch.no_grad():
        recorder.run(*_arguments(program, inputs, state))
    return recorder.values


class _Recorder(Interpreter):
    """Runs a program in PyTorch and records the values of some nodes."""

    def __init__(self, program: ExportedProgram, wanted: set[str]) -> None:
        super().__init__(program.graph_module)
        self.wanted = wanted
        self.values: dict[str, Any] = {}

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        if node.name in self.wanted:
            # A parameter that enters a delegate as an input is a plain tensor to the runtime.
            self.values[node.name] = value.detach() if isinstance(value, torch.Tensor) else value
        return value


def _arguments(
    program: ExportedProgram, inputs: Sequence[Any], state: Mapping[str, Any]
) -> list[Any]:
    """The graph's inputs in its order, constants included."""
    constants = {**program.constants, **program.state_dict, **state}
    values = iter(inputs)
    return [
        constants[spec.target] if spec.target in constants else next(values)
        for spec in program.graph_signature.input_specs
    ]
