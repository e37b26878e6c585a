"""Compile: partitions through their ExecuTorch backends, all of one backend together."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram

from etdev.errors import CompileError, first_line
from etdev.plan import Partition
from etdev.split import Split

Progress = Callable[[int, int, Partition], None]


def compile_all(
    splits: Mapping[str, Split], progress: Progress | None = None
) -> dict[str, list[LoweredBackendModule]]:
    """Compile every partition of every method.

    Args:
        splits: The methods, taken apart.
        progress: Told before each partition: how many are done, how many there are, which is next.

    Returns:
        For each method its compiled partitions in plan order.

    Raises:
        CompileError: A backend is not there or failed; the text names plugin, partition and method.
    """
    work = [
        (partition, program)
        for taken in splits.values()
        for partition, program in zip(taken.partitions, taken.programs, strict=True)
    ]
    done: dict[tuple[str, str], LoweredBackendModule] = {}
    for backend_id in dict.fromkeys(partition.backend_id for partition, _ in work):
        mine = [(part, program) for part, program in work if part.backend_id == backend_id]
        backend = find_backend(mine[0][0])
        for (partition, program), result in zip(
            mine, _preprocess(backend, mine, len(work), len(done), progress), strict=True
        ):
            done[partition.method, partition.name] = _lowered(partition, program, result)
    return {
        method: [done[method, partition.name] for partition in taken.partitions]
        for method, taken in splits.items()
    }


def find_backend(partition: Partition) -> type[BackendDetails]:
    """The backend class of a partition; ExecuTorch finds it by its name, and so do we."""
    for backend in BackendDetails.__subclasses__():
        if backend.__name__ == partition.backend_id:
            return backend  # type: ignore[no-any-return]
    known = ", ".join(sorted(backend.__name__ for backend in BackendDetails.__subclasses__()))
    raise CompileError(
        partition.plugin,
        f"backend {partition.backend_id!r} of {partition.method}/{partition.name} is not loaded",
        f"import it in claim_nodes; loaded are {known}",
    )


def _preprocess(
    backend: type[BackendDetails],
    work: Sequence[tuple[Partition, ExportedProgram]],
    total: int,
    done: int,
    progress: Progress | None,
) -> list[PreprocessResult]:
    if _compiles_together(backend):
        if progress:
            progress(done, total, work[0][0])
        return _together(backend, work)
    results = []
    for index, (partition, program) in enumerate(work):
        if progress:
            progress(done + index, total, partition)
        job = functools.partial(backend.preprocess, *_job(backend, partition, program))
        results.append(_guarded(partition, job))
    return results


def _compiles_together(backend: type[BackendDetails]) -> bool:
    """Whether a backend shares work or data across partitions and methods."""
    own = backend.preprocess_multimethod.__func__
    return own is not BackendDetails.preprocess_multimethod.__func__


def _together(
    backend: type[BackendDetails], work: Sequence[tuple[Partition, ExportedProgram]]
) -> list[PreprocessResult]:
    programs: dict[str, list[ExportedProgram]] = {}
    specs: dict[str, list[list[CompileSpec]]] = {}
    for partition, program in work:
        copied, own = _job(backend, partition, program)
        programs.setdefault(partition.method, []).append(copied)
        specs.setdefault(partition.method, []).append(own)
    job = functools.partial(backend.preprocess_multimethod, programs, specs)
    results = _guarded(work[0][0], job)
    # Methods follow each other in `work` as in the dict, so the lists line up.
    return [result for method in programs for result in results[method]]


def _job(
    backend: type[BackendDetails], partition: Partition, program: ExportedProgram
) -> tuple[ExportedProgram, list[CompileSpec]]:
    """What preprocess gets: a program it may change, and specs of its own."""
    specs = [CompileSpec(spec.key, spec.value) for spec in partition.compile_specs]
    isolate = getattr(backend, "copy_exported_program_for_preprocess", None)
    return (isolate(program, specs) if isolate else copy.deepcopy(program)), specs


def _guarded(partition: Partition, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise CompileError(
            partition.plugin,
            f"{partition.backend_id} failed on {partition.method}/{partition.name} "
            f"({len(partition.nodes)} nodes from {partition.nodes[0]}): {first_line(error)}",
            "leave the plugin out, or see the cause chained below",
        ) from error


def _lowered(
    partition: Partition, program: ExportedProgram, result: PreprocessResult
) -> LoweredBackendModule:
    module = LoweredBackendModule(
        edge_program=program,
        backend_id=partition.backend_id,
        processed_bytes=result.processed_bytes,
        compile_specs=[CompileSpec(spec.key, spec.value) for spec in partition.compile_specs],
        named_data_store_output=result.data_store_output,
    )
    module.meta = {"debug_handle_map": result.debug_handle_map}
    if getattr(result, "_delegate_info_meta", None) is not None:
        module.meta["_delegate_info_meta"] = result._delegate_info_meta
    return module
