"""Compilation: ExecuTorch backends are called, each with all of its partitions together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram

from etdev.delegate.jobs import Job, batches, compiler_of, find_backend, has_own, jobs_of
from etdev.delegate.split import Split, settled_heap
from etdev.errors import CompileError, first_line
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.plan import Partition

Progress = Callable[[int, int, Partition], None]


def compile_all(
    splits: Mapping[str, Split], plugins: Sequence[Plugin], progress: Progress | None = None
) -> dict[str, list[LoweredBackendModule]]:
    """Compile every partition of every method.

    Args:
        splits: The methods, split into programs.
        plugins: Asked for the context in which their partitions are compiled.
        progress: Told before each partition: how many are done, how many there are, which is next.

    Returns:
        For each method its compiled partitions in plan order.

    Raises:
        CompileError: A backend is not loaded or failed; the text names plugin, partition and
            method.
    """
    jobs = jobs_of(splits.values())
    owners = {plugin.name: plugin for plugin in plugins}
    lowered: dict[tuple[str, str], LoweredBackendModule] = {}
    for batch in batches(jobs):
        first = batch[0].partition
        with settled_heap(), answers.compile_context(owners[first.plugin], first.device):
            backend = find_backend(first)
            results = _preprocess(backend, batch, len(jobs), len(lowered), progress)
        for job, result in zip(batch, results, strict=True):
            key = (job.partition.method, job.partition.name)
            lowered[key] = _lowered(job.partition, job.program, result)
    return {
        method: [lowered[method, partition.name] for partition in split.partitions]
        for method, split in splits.items()
    }


def _preprocess(
    backend: type[BackendDetails],
    batch: Sequence[Job],
    total: int,
    done: int,
    progress: Progress | None,
) -> list[PreprocessResult]:
    # Such a backend shares work or data across partitions and methods.
    if has_own(backend, "preprocess_multimethod"):
        if progress:
            progress(done, total, batch[0].partition)
        return _together(backend, batch)
    results = []
    for index, job in enumerate(batch):
        if progress:
            progress(done + index, total, job.partition)
        call = functools.partial(backend.preprocess, *job.arguments(backend))
        results.append(_guarded(job.partition, call))
    return results


def _together(backend: type[BackendDetails], batch: Sequence[Job]) -> list[PreprocessResult]:
    programs: dict[str, list[ExportedProgram]] = {}
    specs: dict[str, list[list[CompileSpec]]] = {}
    for job in batch:
        program, own = job.arguments(backend)
        programs.setdefault(job.partition.method, []).append(program)
        specs.setdefault(job.partition.method, []).append(own)

    def call() -> list[PreprocessResult]:
        results = backend.preprocess_multimethod(programs, specs)
        # Methods follow each other in the batch as in the dict, so the lists line up.
        in_order = [result for method in programs for result in results[method]]
        if len(in_order) != len(batch):
            raise ValueError(f"{len(in_order)} results for {len(batch)} partitions")
        return in_order

    results: list[PreprocessResult] = _guarded(batch[0].partition, call)
    return results


def _guarded(partition: Partition, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise CompileError(
            partition.plugin,
            f"{compiler_of(partition)} failed on {partition.where} "
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
