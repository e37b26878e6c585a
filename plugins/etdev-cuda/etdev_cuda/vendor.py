"""Changes of ExecuTorch's CudaBackend while it compiles, each undone afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from executorch.backends.cuda.cuda_backend import CudaBackend
from torch.export import ExportedProgram

from etdev import EtdevWarning

if TYPE_CHECKING:
    # ExecuTorch 1.4 has none.
    from executorch.backends.cuda.cuda_weight_collector import (
        CudaWeightArtifact,
        CudaWeightCollector,
    )

_MISSED = (
    "AOTInductor calls {kernels}, which CudaBackend's runtime does not have. etdev-cuda foresees "
    "Inductor's choices by rules (etdev_cuda/fallbacks.py), which missed this one: please report "
    'it; with on_failure = "fallback" the nodes of this delegate go to other plugins'
)
_ONE_GPU = (
    "cuda: neither nvcc nor fatbinary is installed, so that the kernels run only on GPUs of the "
    "same compute capability as this one; install the CUDA toolkit, or name nvcc with CUDACXX"
)


@contextmanager
def changed(*, inside: bool, fatbin: bool) -> Iterator[None]:
    """Compile with errors that name kernels, and with what this machine and the user want.

    Args:
        inside: Store the weights in the `.pte`, not in a `.ptd`.
        fatbin: Emit kernels for newer GPUs, too, which needs nvcc or fatbinary.
    """
    with ExitStack() as stack:
        stack.enter_context(_replaced("collect_unsupported_fallback_kernels", _naming))
        stack.enter_context(_replaced("_preprocess_with_weight_collector", _keyed))
        if inside:
            stack.enter_context(_replaced("preprocess_multimethod", _storing_inside))
        if not fatbin:
            stack.enter_context(_replaced("_setup_cuda_environment_for_fatbin", _without_fatbin))
        yield


def _replaced(
    name: str, change: Callable[[Any], Callable[..., Any]]
) -> AbstractContextManager[object]:
    """Replace a function of CudaBackend, if this ExecuTorch has it, by a changed one."""
    before = getattr(CudaBackend, name, None)
    if before is None:
        return nullcontext()
    return mock.patch.object(CudaBackend, name, staticmethod(change(before)))


def _naming(collect: Callable[[set[str]], Any]) -> Callable[..., Any]:
    """Return a collector of missing kernels whose error names them in its first line."""

    @contextmanager
    def collecting(missing: set[str]) -> Iterator[Any]:
        try:
            with collect(missing) as collected:
                yield collected
        except RuntimeError as error:
            if not missing:
                raise
            raise RuntimeError(_MISSED.format(kernels=", ".join(sorted(missing)))) from error

    return collecting


def _keyed(compile_one: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiler of one program that stores each weight under a key of its own.

    CudaBackend's keys are the names of weights, so that two modules with a `l.weight` each are
    refused, and two with a cache of the same name and first value share its memory. The runtime
    takes any key: it binds weights by the names that stand beside the keys.
    """

    def compiled(program: ExportedProgram, specs: Any, collector: CudaWeightCollector) -> Any:
        written = set(program.graph_signature.buffers_to_mutate.values())
        method = CudaBackend.method_name_from_compile_specs(specs)
        add = collector.add_preprocess_result

        def added(result: Any, weights: CudaWeightArtifact, device: str) -> None:
            add(result, _with_own_keys(weights, written, method), device)

        with mock.patch.object(collector, "add_preprocess_result", added):
            return compile_one(program, specs, collector)

    return compiled


def _with_own_keys(
    weights: CudaWeightArtifact, written: Collection[str], method: str
) -> CudaWeightArtifact:
    """Return weights with keys by content, and buffers that the program writes by method."""
    entries, storages = [], {}
    for entry in weights.entries:
        data = weights.storages[entry.storage_key]
        own = method if entry.fqn in written else data.sha256().hex()[:16]
        key = f"{entry.storage_key}@{own}"
        entries.append(replace(entry, storage_key=key))
        storages[key] = data
    return replace(weights, entries=entries, storages=storages)


def _storing_inside(compile_all: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiler whose results keep in the `.pte` what goes into a `.ptd` otherwise."""

    def compiled(*arguments: Any, **named: Any) -> Any:
        found = compile_all(*arguments, **named)
        for result in (result for results in found.values() for result in results):
            stored = result.data_store_output
            for entries in stored.external_data.values() if stored else ():
                stored.pte_data.update(entries)
            if stored:
                stored.external_data.clear()
        return found

    return compiled


def _without_fatbin(prepare: Callable[[], bool]) -> Callable[[], bool]:
    """Return a preparation that turns kernels for several GPUs off."""

    def prepared() -> bool:
        prepare()
        warnings.warn(_ONE_GPU, EtdevWarning, stacklevel=2)
        return False

    return prepared
