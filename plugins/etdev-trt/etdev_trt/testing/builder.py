"""A fake of TensorRT's engine builder: torch-tensorrt does all but build the engine.

with library.installed(), builder.installed() as fake:
    lowered = Lowerer([TrtPlugin(compile=True)]).lower(model, inputs)
print(len(fake.built))
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from attrs import define, field


class FakeEngine(torch.nn.Module):
    """The engine that torch-tensorrt would build of a graph, but with bytes that can't run."""

    requires_output_allocator = False

    def __init__(self, module: Any, settings: Any) -> None:
        super().__init__()
        outputs = module.graph.output_node().all_input_nodes
        self.serialized_engine = b"an engine"
        self.hardware_compatible = settings.hardware_compatible
        self.input_binding_names = [n.name for n in module.graph.find_nodes(op="placeholder")]
        self.output_binding_names = [f"output{index}" for index, _ in enumerate(outputs)]

    def set_output_tensors_as_unowned(self, _: bool) -> None:
        """Do nothing: the host runs no engine."""


@define(eq=False)
class FakeBuilder:
    """Replaces the builder of engines.

    Args:
        built: Graph, inputs and settings of each engine, in the order they were asked for.
    """

    built: list[tuple[Any, Any, Any]] = field(factory=list)

    def build(self, module: Any, inputs: Any, settings: Any, **_: Any) -> FakeEngine:
        """Replace torch-tensorrt's `convert_module`, the first function that needs the library."""
        self.built.append((module, inputs, settings))
        return FakeEngine(module, settings)


@contextmanager
def installed() -> Iterator[FakeBuilder]:
    """Return the fake builder, on a machine without a GPU."""
    builder = FakeBuilder()
    with (
        mock.patch("torch_tensorrt.dynamo._compiler.convert_module", builder.build),
        # A build of torch for CPUs can't name a GPU.
        mock.patch("torch.export.passes.move_to_device_pass", lambda program, _: program),
    ):
        yield builder
