"""AOTInductor itself under the real CudaBackend, and its libraries called through torch.

For a GPU, the libraries are those of a `.pte`, linked to torch instead of CudaBackend's runtime.
For the CPU, too, CudaBackend's preprocess_multimethod, its weight collector, its list of kernels
and torch's aot_compile are real, which needs a C++ compiler; replaced are the device's name,
options and passes for Triton, and the machine's answer that there is a GPU.

    with compiling("cpu"):
        lowered = Lowerer(["cuda"]).lower(model, inputs)
    outputs = CompiledProgram.of(lowered)(*inputs)
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from attrs import define, field
from executorch.exir.lowered_backend_module import LoweredBackendModule

from etdev.schema.dtypes import DTYPES
from etdev.testing.simulation import Simulation, named_data
from etdev_cuda.testing.aoti import gpus

_MAGIC = b"ETCUDAFQN3"
# CudaBackend writes dtypes as numbers of torch's C++.
_DTYPES = {dtype.code: getattr(torch, dtype.name) for dtype in DTYPES}
# Kernels that are called on CPUs where GPUs have Triton's code: products, convolutions, scans, and
# the joining of bytes.
_TRITON_ON_GPUS = {
    *(f"aoti_torch_cpu_{name}" for name in ("mm_out", "addmm_out", "bmm_out", "baddbmm_out")),
    *("aoti_torch_cpu_convolution", "aoti_torch_cpu__mm_plus_mm_out", "aoti_torch_cpu__int_mm_out"),
    *(f"at::_ops::{name}::call" for name in ("cumsum", "cumprod", "logcumsumexp")),
    *(f"at::_ops::{name}::call" for name in ("cummax", "cummin", "bucketize_Tensor")),
    *("at::_ops::searchsorted_Tensor::call", "at::_ops::cat::call"),
}


class _Kernels(dict[str, None]):
    """CudaBackend's kernels, asked for by the names that they have on a CPU."""

    def __contains__(self, name: object) -> bool:
        on_gpu = str(name).replace("aoti_torch_cpu_", "aoti_torch_cuda_")
        return name in _TRITON_ON_GPUS or super().__contains__(on_gpu)


@contextlib.contextmanager
def compiling(device: str = "cpu") -> Iterator[None]:
    """CudaBackend compiles libraries that torch can load.

    Args:
        device: `cuda`, or `cpu` on a machine without a GPU, which then seems to have one.
    """
    from executorch.backends.cuda.cuda_backend import CudaBackend

    options, passes = CudaBackend.get_aoti_compile_options, CudaBackend.get_custom_passes

    def linked(specs: Any) -> dict[str, Any]:
        chosen = {**options(specs), "aot_inductor.link_libtorch": True}
        return chosen if device == "cuda" else _on_cpu(chosen)

    with contextlib.ExitStack() as stack:

        def replace(name: str, change: Any) -> None:
            stack.enter_context(mock.patch.object(CudaBackend, name, staticmethod(change)))

        replace("get_aoti_compile_options", linked)
        if device != "cuda":
            kernels = _Kernels(CudaBackend.get_supported_fallback_kernels())
            replace("get_device_name", lambda: "cpu")
            replace("get_supported_fallback_kernels", lambda: kernels)
            replace("get_custom_passes", lambda specs: _without_triton(passes(specs)))
            stack.enter_context(gpus(1))
            nothing = contextlib.nullcontext()
            stack.enter_context(mock.patch.object(torch.cuda, "device", return_value=nothing))
        yield


def _on_cpu(options: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {**options, "max_autotune": False}
    chosen |= {f"max_autotune_{kind}_backends": "ATEN" for kind in ("gemm", "conv")}
    # A GPU's code has no vectors of a CPU, and to find out which ones this CPU has, to compile
    # headers beforehand and to optimise what calls the kernels takes longer than the rest.
    chosen |= {"cpp.vec_isa_ok": False, "aot_inductor.compile_wrapper_opt_level": "O0"}
    chosen |= {"aot_inductor.precompile_headers": False, "cpp_cache_precompile_headers": False}
    gpu_only = ("aot_inductor.emit_multi_arch_kernel", "aot_inductor.embed_kernel_binary")
    return {key: value for key, value in chosen.items() if key not in gpu_only}


def _without_triton(passes: Sequence[Any]) -> list[Any]:
    return [item for item in passes if "Triton" not in type(item).__name__]


@define(eq=False)
class CompiledProgram(Simulation):
    """A method whose CUDA delegates run as compiled, and whose other nodes run in eager PyTorch.

    State lives from call to call, inside of delegates and outside. Inputs and outputs are on the
    CPU, as in ExecuTorch.

    Args:
        device: What the delegates were compiled for, `cpu` or `cuda`.
    """

    device: str = "cpu"
    libraries: dict[LoweredBackendModule, Any] = field(factory=dict)

    def call(self, module: LoweredBackendModule, inputs: Sequence[Any]) -> Sequence[Any]:
        """Call a delegate."""
        if module.backend_id != "CudaBackend":
            return super().call(module, inputs)
        if module not in self.libraries:
            self.libraries[module] = _loaded(module, self.device)
        given = [tensor.contiguous().to(self.device) for tensor in inputs]
        return [output.cpu() for output in self.libraries[module].run(given)]


def _loaded(module: LoweredBackendModule, device: str) -> Any:
    """Return the library of a delegate with its weights, both out of its named data."""
    stored = named_data(module)
    library, weights = _payload(module.processed_bytes)
    folder = Path(tempfile.mkdtemp())
    path = folder / "delegate.wrapper.so"
    path.write_bytes(stored[library])
    runners = torch._C._aoti
    runner: Any = (
        runners.AOTIModelContainerRunnerCuda(str(path), 1, device)
        if device == "cuda"
        else runners.AOTIModelContainerRunnerCpu(str(path), 1)
    )
    values = {name: _weight(stored[key], *layout).to(device) for name, key, layout in weights}
    names = runner.get_constant_names_to_original_fqns()
    given = {name: values[fqn] for name, fqn in names.items() if fqn in values}
    runner.update_constant_buffer(given, False, False)
    return runner


def _payload(payload: bytes) -> tuple[str, list[tuple[str, str, Any]]]:
    """Return the key of its library, and name, key and layout of each weight."""
    assert payload.startswith(_MAGIC)
    at = len(_MAGIC)

    def text() -> str:
        nonlocal at
        (size,) = struct.unpack_from("<I", payload, at)
        at += 4 + size
        return payload[at - size : at].decode()

    library = text()
    (count,) = struct.unpack_from("<I", payload, at)
    at += 4
    weights = []
    for _ in range(count):
        name, key = text(), text()
        _, dtype, _, offset, rank = struct.unpack_from("<QiiqI", payload, at)
        at += struct.calcsize("<QiiqI")
        numbers = struct.unpack_from(f"<{2 * rank}q", payload, at)
        at += 16 * rank
        weights.append((name, key, (dtype, offset, numbers[:rank], numbers[rank:])))
    return library, weights


def _weight(data: bytes, dtype: int, offset: int, sizes: Any, strides: Any) -> torch.Tensor:
    if not data:
        return torch.empty(sizes, dtype=_DTYPES[dtype])
    whole = torch.frombuffer(bytearray(data), dtype=_DTYPES[dtype])
    return torch.as_strided(whole, sizes, strides, offset)
