"""Jobs: the partitions to compile, and which of them go into one call of a backend."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram

from etdev.delegate.backends import compiler_of, has_own
from etdev.delegate.split import Split
from etdev.schema.device import Device
from etdev.schema.partition import Partition
from etdev.upstream.emission import DELEGATE_INFO, delegate_info

_ISOLATE = "copy_exported_program_for_preprocess"


@frozen(eq=False)
class Job:
    """One partition to compile.

    Args:
        partition: The partition as planned.
        program: Its program, which is not changed.
        split: The method it belongs to; None if nothing else reads the program.
    """

    partition: Partition
    program: ExportedProgram
    split: Split | None = None

    def arguments(self, backend: type[BackendDetails]) -> tuple[ExportedProgram, list[CompileSpec]]:
        """Return the arguments of `preprocess`: a program and specs that the backend may change."""
        specs = self._specs()
        # Since 1.5 a backend may have its own way; ExecuTorch's default is a deep copy.
        if has_own(backend, _ISOLATE):
            return getattr(backend, _ISOLATE)(self.program, specs), specs
        return (self.split.isolated(self.partition) if self.split else self.program), specs

    def module(self, result: PreprocessResult) -> LoweredBackendModule:
        """Return the module that the method calls in place of the partition."""
        module = LoweredBackendModule(
            edge_program=self.program,
            backend_id=self.partition.backend_id,
            processed_bytes=result.processed_bytes,
            compile_specs=self._specs(),
            named_data_store_output=result.data_store_output,
        )
        module.meta = {"debug_handle_map": result.debug_handle_map}
        if (info := delegate_info(result)) is not None:
            module.meta[DELEGATE_INFO] = info
        return module

    def _specs(self) -> list[CompileSpec]:
        return [CompileSpec(spec.key, spec.value) for spec in self.partition.compile_specs]


def jobs_of(splits: Iterable[Split]) -> list[Job]:
    """Return a job for each partition of all methods, in plan order."""
    return [
        Job(partition, program, split)
        for split in splits
        for partition, program in zip(split.partitions, split.programs, strict=True)
    ]


def batches(jobs: Iterable[Job]) -> list[list[Job]]:
    """Group jobs by plugin, backend and device: one call compiles a group if the backend can."""
    together: dict[tuple[str, str, Device], list[Job]] = {}
    for job in jobs:
        key = (job.partition.plugin, compiler_of(job.partition), job.partition.device)
        together.setdefault(key, []).append(job)
    return list(together.values())
