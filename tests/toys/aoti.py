"""A fake of AOTInductor, which needs a GPU; the rest of ExecuTorch's CudaBackend is real."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from torch.export.pt2_archive._package_weights import TensorProperties, Weights

from etdev import Device, Probe

# ExecuTorch 1.4's CudaBackend stores a blob per delegate, and fails on control flow.
NEEDS_1_5 = pytest.mark.skipif(
    find_spec("executorch.backends.cuda.cuda_weight_collector") is None,
    reason="the CudaBackend of ExecuTorch 1.4 can't",
)
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

    def install(self, monkeypatch: Any) -> FakeAoti:
        """Put it in the place of AOTInductor and of this machine's missing GPUs."""
        import executorch.backends.aoti.aoti_backend as aoti_backend
        import executorch.backends.cuda.cuda_backend as cuda_backend
        import torch._inductor
        from etdev_cuda import machine

        found = Probe([Device("cuda", index) for index in range(self.gpus)])
        monkeypatch.setattr(machine, "probe", lambda: found)
        monkeypatch.setattr(torch.cuda, "device", self.on)
        monkeypatch.setattr(torch._inductor, "aot_compile", self.compile)
        for module in (aoti_backend, torch.export.passes):
            monkeypatch.setattr(module, "move_to_device_pass", lambda program, device: program)
        stays = "_move_to_device_resize_kv"
        monkeypatch.setattr(cuda_backend, stays, lambda program, device: program)
        return self

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
        """As torch._inductor.aot_compile: the library's path, and the weights in its format."""
        nodes = [node.name for node in module.graph.nodes if node.op == "call_function"]
        library = Path(tempfile.mkdtemp()) / "fake.wrapper.so"
        library.write_text(str(module.graph))
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        tensors = {name: tensor.detach() for name, tensor in tensors.items()}
        addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        self.calls.append(Call(nodes, options, self._current, addresses))
        if options.get(_WEIGHTS_FORMAT) == "pickle_weights":
            found = Weights({name: (t, TensorProperties(t)) for name, t in tensors.items()})
            return [str(library), found]
        blob = library.with_name("fake.wrapper_weights.blob")
        blob.write_bytes(b"".join(tensor.numpy().tobytes() for tensor in tensors.values()))
        return [str(library), str(blob)]
