"""A fake of AOTInductor, which needs a GPU; the rest of ExecuTorch's CudaBackend is real.

    with FakeAoti(gpus=1).installed() as aoti:
        lowered = Lowerer(["cuda"]).lower(model, inputs)
    print(aoti.calls[0].nodes)

The delegates can't run. CudaBackend needs triton where it is imported.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

from attrs import define, field
from torch.export.pt2_archive._package_weights import TensorProperties, Weights

from etdev.schema.device import Device, Probe

_WEIGHTS_FORMAT = "aot_inductor.package_constants_on_disk_format"


@define(eq=False)
class Call:
    """One call of the compiler: what it computes, its options, the current GPU, its weights."""

    nodes: list[str]
    options: dict[str, Any]
    device: int | None
    addresses: dict[str, int]


@define(eq=False)
class FakeAoti:
    """Compiles to a library whose code is the text of the graph, on GPUs that it pretends to have.

    Args:
        gpus: How many; a call on another one fails as CUDA does.
        calls: What was compiled.
    """

    gpus: int = 2
    calls: list[Call] = field(factory=list)
    _current: int | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[FakeAoti]:
        """Stands in for AOTInductor and for this machine's missing GPUs until the context ends."""
        import torch._inductor
        from executorch.backends.aoti import aoti_backend
        from executorch.backends.cuda import cuda_backend
        from torch.export import passes

        with (
            mock.patch.object(torch.cuda, "device", self.on),
            mock.patch.object(torch._inductor, "aot_compile", self.compile),
            mock.patch.object(passes, "move_to_device_pass", _stay),
            mock.patch.object(aoti_backend, "move_to_device_pass", _stay),
            mock.patch.object(cuda_backend, "_move_to_device_resize_kv", _stay),
            gpus(self.gpus),
        ):
            yield self

    @contextlib.contextmanager
    def on(self, index: int) -> Iterator[None]:
        """torch.cuda.device of this pretended machine."""
        if index >= self.gpus:
            raise RuntimeError("CUDA error: invalid device ordinal")
        before, self._current = self._current, index
        try:
            yield
        finally:
            self._current = before

    def compile(self, module: Any, args: Any, options: dict[str, Any]) -> list[Any]:
        """Return the library's path and the weights, as torch._inductor.aot_compile does."""
        nodes = [node.name for node in module.graph.nodes if node.op == "call_function"]
        library = Path(tempfile.mkdtemp()) / "fake.wrapper.so"
        library.write_text(str(module.graph))
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        tensors = {name: tensor.detach() for name, tensor in tensors.items()}
        addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        self.calls.append(Call(nodes, options, self._current, addresses))
        if options.get(_WEIGHTS_FORMAT) == "pickle_weights":
            weights = Weights({name: (t, TensorProperties(t)) for name, t in tensors.items()})
            return [str(library), weights]
        blob = library.with_name("fake.wrapper_weights.blob")
        blob.write_bytes(b"".join(tensor.numpy().tobytes() for tensor in tensors.values()))
        return [str(library), str(blob)]


def _stay(program: Any, device: Any) -> Any:
    return program


def gpus(count: int) -> AbstractContextManager[Any]:
    """Return a context in which the plugin's probe finds GPUs that are not there."""
    probe = Probe([Device("cuda", index) for index in range(count)])
    return mock.patch("etdev_cuda.machine.probe", return_value=probe)
