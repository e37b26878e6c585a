"""The hooks of the plugin that gives AOTInductor all nodes that earlier plugins left."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, ClassVar

from attrs import asdict, field, frozen, validators

from etdev import Claim, Constant, Device, Draft, KeepWhole, Partition, Probe, hookimpl
from etdev.errors import DeviceError
from etdev_cuda import machine, options
from etdev_cuda.payload import BACKEND_ID, device_of, keys

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from etdev_cuda.support import Support

_PLATFORMS = validators.optional(validators.in_(("linux", "windows")))
_POSITIVE = validators.optional(validators.gt(0))


@frozen
class CudaPlugin:
    """CUDA delegates, compiled by AOTInductor. An option left out has ExecuTorch's default.

    Args:
        low_memory_mode: Compile in less GPU memory: KV caches and copies of weights stay off it.
        triton_kernel_mode: Triton kernels for attention and others; False decomposes them.
        max_autotune: Try kernels and take the fastest.
        emulate_precision_casts: Round where eager PyTorch rounds, in lower precisions.
        autotune_at_compile_time: Tune while compiling, not at the first run.
        autotune_pointwise: Tune pointwise kernels as well.
        platform: `linux` or `windows`, where the program will run.
        shim_library_path: Folder with the import library to link against, for `windows`.
        target_smem_bytes: Shared memory per block of the GPU to compile for, in bytes.
        arch_list: Compute capabilities to compile for, as `TORCH_CUDA_ARCH_LIST`: `8.7`.
        external_weights: Store weights in a `.ptd` beside the `.pte`, else in it. By default they
            are inside before ExecuTorch 1.5, since no runtime before it takes a `.ptd`.
    """

    # The version of the hooks that it was written for.
    etdev_api: ClassVar[int] = 1
    # The backend's own partitioner, for `etdev reduce`.
    partitioner_source: ClassVar[str] = (
        "from executorch.backends.cuda.cuda_backend import CudaBackend\n"
        "from executorch.backends.cuda.cuda_partitioner import CudaPartitioner\n"
        "CudaPartitioner([CudaBackend.generate_method_name_compile_spec('forward')])"
    )
    low_memory_mode: bool | None = None
    triton_kernel_mode: bool | None = None
    max_autotune: bool | None = None
    emulate_precision_casts: bool | None = None
    autotune_at_compile_time: bool | None = None
    autotune_pointwise: bool | None = None
    platform: str | None = field(default=None, validator=_PLATFORMS)
    shim_library_path: str | None = None
    target_smem_bytes: int | None = field(default=None, validator=_POSITIVE)
    arch_list: str | None = None
    external_weights: bool | None = None

    @hookimpl
    def probe(self) -> Probe:
        """Fit with a GPU, a CUDA build of torch, triton and a C++ compiler."""
        return machine.probe()

    @hookimpl
    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """Every op, since AOTInductor decomposes by itself."""
        return self._support().keep_whole(program)

    @hookimpl
    def claim_nodes(
        self, program: ExportedProgram, method: str, taken: Mapping[str, str]
    ) -> list[Claim]:
        """Everything that is in no delegate yet; a claim for each device that has its values."""
        from etdev_cuda.support import by_device

        groups, refusals = self._support().match(program, taken)
        specs = {"method_name": method, **options.compile_specs(self._options())}
        return [
            Claim(
                BACKEND_ID,
                groups_of_device,
                refusals if number == 0 else (),
                compile_specs={key: text.encode() for key, text in specs.items()},
                device_types=("cuda",),
                named_data=_shares_weights(),
            )
            for number, groups_of_device in enumerate(by_device(program, groups))
        ]

    @hookimpl
    def claim_constants(self, program: ExportedProgram, partition: Draft) -> Sequence[Constant]:
        """All but what AOTInductor misreads; a written buffer only if this delegate can keep it."""
        from etdev.graph import folded_integers

        folded = folded_integers(program)
        # Inductor takes a written buffer of one element, such as a counter, for the number that it
        # is at first, so that every call would begin anew.
        return [
            constant
            for constant in partition.constants
            if partition.may_hold(constant)
            and constant.name not in folded
            and not (constant.mutated and math.prod(constant.shape) == 1)
        ]

    @hookimpl
    def resolve_device(self, program: ExportedProgram, partition: Partition) -> Device | None:
        """Return the device of its values, or the default if they are on the CPU."""
        from etdev_cuda.support import devices

        known = devices(program)
        names = [*partition.nodes, *(constant.name for constant in partition.constants)]
        candidates = sorted({known[name] for name in names if name in known})
        if len(candidates) > 1:
            raise DeviceError(
                "cuda",
                f"{partition.where} has values on {candidates[0]} and {candidates[1]}",
                "move one of them, or pin the plugin to a device",
            )
        return candidates[0] if candidates else None

    @hookimpl
    def device_caveat(self, partition: Partition) -> str | None:
        """Say that the runtime opens a delegate on the current device, whatever its label is."""
        if partition.device.index == 0:
            return None
        return (
            "ExecuTorch's CudaBackend runs on the current CUDA device of the process, cuda:0 by "
            f"default; call cudaSetDevice({partition.device.index}) before loading"
        )

    @hookimpl
    def compile_context(self, device: Device) -> AbstractContextManager[None]:
        """Compile on the GPU that the delegate is for, since kernels are tuned there."""
        return self._compiling(device)

    @hookimpl
    def cache_key(self) -> Mapping[str, str]:
        """Return the compilers and torch's settings, by which AOTInductor generates code."""
        inside = {"weights": "inside" if self._inside() else "outside"}
        return {**machine.compilers(), **options.inductor(), **inside}

    @hookimpl
    def runner_for(self, backend_id: str) -> str | None:
        """Return torch-tensorrt's runtime, which has CudaBackend, where it is installed."""
        return machine.runner() if backend_id == BACKEND_ID else None

    @hookimpl
    def payload_device(
        self, backend_id: str, payload: bytes, arguments: int | None
    ) -> Device | None:
        """cuda:0, since the runtime opens its delegates on the current device."""
        return device_of(payload, arguments) if backend_id == BACKEND_ID else None

    @hookimpl
    def payload_data(self, backend_id: str, payload: bytes) -> Sequence[str] | None:
        """Return the keys of its library, which is in the .pte, and of its weights."""
        return keys(payload) if backend_id == BACKEND_ID else None

    @contextmanager
    def _compiling(self, device: Device) -> Iterator[None]:
        import torch

        from etdev_cuda import vendor

        variables = options.variables(self._options())
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        # Inductor raises it and leaves it raised.
        recursion = sys.getrecursionlimit()
        try:
            changed = vendor.changed(inside=self._inside(), fatbin=machine.makes_fatbins())
            with torch.cuda.device(device.index), changed:
                yield
        finally:
            sys.setrecursionlimit(recursion)
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def _support(self) -> Support:
        from etdev_cuda.support import Support

        return Support(BACKEND_ID, self.max_autotune is not False)

    def _inside(self) -> bool:
        return not (_shares_weights() if self.external_weights is None else self.external_weights)

    def _options(self) -> dict[str, bool | int | str]:
        """Return what is given of ExecuTorch's options."""
        given = asdict(self, filter=lambda _, value: value is not None)
        given.pop("external_weights", None)
        return given


def _shares_weights() -> bool:
    """Return True if CudaBackend names weights one by one, so that each is stored once."""
    from importlib.util import find_spec

    return find_spec("executorch.backends.cuda.cuda_weight_collector") is not None
