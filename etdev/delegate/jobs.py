"""Jobs: what there is to compile, by which backend, and what goes into one call of it."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen
from executorch.exir.backend.backend_details import BackendDetails
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from etdev.delegate.split import Split
from etdev.errors import CompileError
from etdev.schema.device import Device
from etdev.schema.plan import Partition

_ISOLATE = "copy_exported_program_for_preprocess"
_DEEP_COPY = getattr(getattr(BackendDetails, _ISOLATE, None), "__func__", None)


@frozen(eq=False)
class Job:
    """One partition to compile.

    Args:
        partition: The partition as planned.
        program: Its program, which stays as it is.
        split: The method it belongs to.
    """

    partition: Partition
    program: ExportedProgram
    split: Split

    def arguments(self, backend: type[BackendDetails]) -> tuple[ExportedProgram, list[CompileSpec]]:
        """What `preprocess` is given: a program and specs that the backend may change."""
        specs = [CompileSpec(spec.key, spec.value) for spec in self.partition.compile_specs]
        return self.isolated(backend, specs), specs

    def isolated(self, backend: type[BackendDetails], specs: list[CompileSpec]) -> ExportedProgram:
        """The program, as one that a backend may change."""
        isolate = getattr(backend, _ISOLATE, None)
        # Since 1.5 a backend may have its own way; ExecuTorch's default is a deep copy.
        if isolate is not None and isolate.__func__ is not _DEEP_COPY:
            return isolate(self.program, specs)  # type: ignore[no-any-return]
        return self.copied()

    def copied(self) -> ExportedProgram:
        """A copy of the program and of its weights."""
        return self.split.isolated(self.partition)


def jobs_of(splits: Iterable[Split]) -> list[Job]:
    """The partitions of all methods, in plan order."""
    return [
        Job(partition, program, split)
        for split in splits
        for partition, program in zip(split.partitions, split.programs, strict=True)
    ]


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


def batches(jobs: Iterable[Job]) -> list[list[Job]]:
    """Jobs that one call compiles if the backend can: of one plugin and backend, on one device."""
    together: dict[tuple[str, str, Device], list[Job]] = {}
    for job in jobs:
        key = (job.partition.plugin, compiler_of(job.partition), job.partition.device)
        together.setdefault(key, []).append(job)
    return list(together.values())
