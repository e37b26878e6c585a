"""Programs with engine nodes, as torch-tensorrt leaves them; the engines are fakes.

    with library.installed():
        lowered = Lowerer(["trt", "cpu"]).lower(exported(Engines("0%9", "1%9")))

Their op comes with torch-tensorrt, or with the fake library.
"""

from __future__ import annotations

import base64
import pickle
from typing import Any

import torch
from torch import nn

ENGINE = bytes(range(48))
X = torch.arange(8.0).reshape(2, 4) / 8


def _shapes(*tensors: torch.Tensor, names: str) -> list[dict[str, Any]]:
    return [
        {"shape_exprs": list(t.shape), "name": name, "dtype": t.dtype}
        for name, t in zip(names.split("%"), tensors, strict=True)
    ]


def metadata(inputs: str = "x", outputs: str = "y", like: torch.Tensor = X) -> str:
    """Return an engine's shapes as torch-tensorrt keeps them: a pickle, in base64."""
    expressions = {
        "inputs": _shapes(*[like] * len(inputs.split("%")), names=inputs),
        "outputs": _shapes(*[like] * len(outputs.split("%")), names=outputs),
    }
    return base64.b64encode(pickle.dumps({"inout_symexprs": expressions})).decode()


def run_engine(  # noqa: PLR0913  The fields of an engine.
    tensors: list[torch.Tensor],
    engine: torch.Tensor,
    device: str = "0%9%0%0%NVIDIA H200",
    *,
    name: str = "net",
    inputs: str = "x",
    outputs: str = "y",
    allocator: str = "0",
    aliased: str = "",
    known: str | None = None,
) -> list[torch.Tensor]:
    """Call the placeholder op with the fields of an engine.

    Args:
        tensors: Its inputs.
        engine: Its bytes, as a tensor.
        device: Its GPU, as torch-tensorrt writes one: index, compute capability and name.
        name: Its name.
        inputs: Names of its bindings, with % between them.
        outputs: The same of its outputs.
        allocator: `1` if it needs an output allocator.
        aliased: Which outputs are written into which inputs.
        known: Its metadata, if not all inputs and outputs are like X; without aliased outputs.
    """
    known = metadata(inputs, outputs) if known is None else known
    fields = [
        *("9", name, device, engine, inputs, outputs, "0", known),
        *("linux_x86_64", allocator, "static", "0"),
    ]
    added = [aliased] if _takes_aliases() else []
    op = torch.ops.tensorrt.no_op_placeholder_for_execute_engine
    values: list[torch.Tensor] = op(tensors, *fields, *added)
    return values


# torch.export traces into `run_engine` inside control flow, and can't look at a schema.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _takes_aliases() -> bool:
    """Return True if engines have the field that torch-tensorrt 2.14 added."""
    op = torch.ops.tensorrt.no_op_placeholder_for_execute_engine.default
    return any(argument.name == "serialized_aliased_io" for argument in op._schema.arguments)


class Engines(nn.Module):
    """An engine for each device, one after another, with CPU work before, between and after.

    Args:
        devices: As `run_engine` takes one.
        engine: The bytes of each; its number is appended.
        fields: What else `run_engine` takes.
    """

    def __init__(self, *devices: str, engine: bytes = ENGINE, **fields: str) -> None:
        super().__init__()
        self.devices, self.fields = devices, fields
        for index, _ in enumerate(devices):
            data = torch.frombuffer(bytearray(engine) + bytes([index]), dtype=torch.uint8)
            self.register_buffer(f"engine_{index}", data)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the engines, called in turn."""
        for index, device in enumerate(self.devices):
            engine = getattr(self, f"engine_{index}")
            (x,) = run_engine([x + 1], engine, device, name=f"net_{index}", **self.fields)
        return torch.cumsum(x, 0)


def exported(module: nn.Module, *inputs: torch.Tensor) -> torch.export.ExportedProgram:
    """Return the ATen program of a module, for X if there are no inputs."""
    with torch.no_grad():
        return torch.export.export(module.eval(), inputs or (X,))
