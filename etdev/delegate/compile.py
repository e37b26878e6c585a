"""Compile: partitions through their ExecuTorch backends, all of one backend together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram

from etdev.delegate.split import Split, settled_heap
from etdev.errors import CompileError, first_line
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.device import Device
from etdev.schema.plan import Partition

_ISOLATE = "copy_exported_program_for_preprocess"
_DEEP_COPY = getattr(getattr(BackendDetails, _ISOLATE, None), "__func__", None)
Progress = Callable[[int, int, Partition], None]


def compile_all(
    splits: Mapping[str, Split], plugins: Sequence[Plugin], progress: Progress | None = None
) -> dict[str, list[LoweredBackendModule]]:
    """Compile every partition of every method.

    Args:
        splits: The methods, taken apart.
        plugins: Asked for the context in which their partitions are compiled.
        progress: Told before each partition: how many are done, how many there are, which is next.

    Returns:
        For each method its compiled partitions in plan order.

    Raises:
        CompileError: A backend is not there or failed; the text names plugin, partition and method.
    """
    work = [
        Job(partition, program, taken)
        for taken in splits.values()
        for partition, program in zip(taken.partitions, taken.programs, strict=True)
    ]
    owners = {plugin.name: plugin for plugin in plugins}
    done: dict[tuple[str, str], LoweredBackendModule] = {}
    for mine in _batches(work):
        first = mine[0].partition
        with settled_heap(), answers.compile_context(owners[first.plugin], first.device):
            backend = find_backend(first)
            results = _preprocess(backend, mine, len(work), len(done), progress)
        for job, result in zip(mine, results, strict=True):
            key = (job.partition.method, job.partition.name)
            done[key] = _lowered(job.partition, job.program, result)
    return {
        method: [done[method, partition.name] for partition in taken.partitions]
        for method, taken in splits.items()
    }


@frozen(eq=False)
class Job:
    """One partition to compile.

    Args:
        partition: What was planned.
        program: Its program, which stays as it is.
        taken: The method it was taken out of.
    """

    partition: Partition
    program: ExportedProgram
    taken: Split

    def arguments(self, backend: type[BackendDetails]) -> tuple[ExportedProgram, list[CompileSpec]]:
        """What preprocess gets: a program it may change, and specs of its own."""
        specs = [CompileSpec(spec.key, spec.value) for spec in self.partition.compile_specs]
        isolate = getattr(backend, _ISOLATE, None)
        # Since 1.5 a backend may have its own way; ExecuTorch's default is a deep copy.
        if isolate is not None and isolate.__func__ is not _DEEP_COPY:
            return isolate(self.program, specs), specs
        return self.taken.isolated(self.partition), specs


def compiler_of(partition: Partition) -> str:
    """Name of the backend that compiles a partition."""
    return partition.compiler or partition.backend_id


def find_backend(partition: Partition) -> type[BackendDetails]:
    """The class that compiles a partition; ExecuTorch finds it by its name, and so do we."""
    name = compiler_of(partition)
    for backend in BackendDetails.__subclasses__():
        if backend.__name__ == name:
            return backend  # type: ignore[no-any-return]
    known = ", ".join(sorted(backend.__name__ for backend in BackendDetails.__subclasses__()))
    raise CompileError(
        partition.plugin,
        f"backend {name!r} of {partition.where} is not loaded",
        f"import it in claim_nodes or in compile_context; loaded are {known}",
    )


def _batches(work: Sequence[Job]) -> list[list[Job]]:
    """What is compiled in one call if the backend can: of one plugin and backend, on one device."""
    batches: dict[tuple[str, str, Device], list[Job]] = {}
    for job in work:
        part = job.partition
        batches.setdefault((part.plugin, compiler_of(part), part.device), []).append(job)
    return list(batches.values())


def _preprocess(
    backend: type[BackendDetails],
    work: Sequence[Job],
    total: int,
    done: int,
    progress: Progress | None,
) -> list[PreprocessResult]:
    if _compiles_together(backend):
        if progress:
            progress(done, total, work[0].partition)
        return _together(backend, work)
    results = []
    for index, job in enumerate(work):
        if progress:
            progress(done + index, total, job.partition)
        call = functools.partial(backend.preprocess, *job.arguments(backend))
        results.append(_guarded(job.partition, call))
    return results


def _compiles_together(backend: type[BackendDetails]) -> bool:
    """Whether a backend shares work or data across partitions and methods."""
    own = backend.preprocess_multimethod.__func__
    return own is not BackendDetails.preprocess_multimethod.__func__


def _together(backend: type[BackendDetails], work: Sequence[Job]) -> list[PreprocessResult]:
    programs: dict[str, list[ExportedProgram]] = {}
    specs: dict[str, list[list[CompileSpec]]] = {}
    for job in work:
        program, own = job.arguments(backend)
        programs.setdefault(job.partition.method, []).append(program)
        specs.setdefault(job.partition.method, []).append(own)
    call = functools.partial(backend.preprocess_multimethod, programs, specs)
    results = _guarded(work[0].partition, call)
    # Methods follow each other in `work` as in the dict, so the lists line up.
    return [result for method in programs for result in results[method]]


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
