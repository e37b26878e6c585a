"""Calls of backends' compilers, and the partitions that each of them compiles."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import evolve, frozen
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram

from etdev.delegate.backends import compiler_of, find_backend, has_own
from etdev.delegate.results import checked, checked_together
from etdev.delegate.split import Split
from etdev.errors import CompileError, PluginError, first_line
from etdev.graph.nodes import module_paths
from etdev.graph.symbols import fake_mode, keep_ranges, settled
from etdev.graph.tracebacks import place_of
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.registry.watchdog import waiting_for
from etdev.schema.device import Device
from etdev.schema.partition import Partition
from etdev.schema.wording import counted, listed
from etdev.upstream.emission import DELEGATE_INFO
from etdev.upstream.shortcuts.delegates import record_shapes

# More source modules than these are counted instead of named.
_NAMED = 5
_ISOLATE = "copy_exported_program_for_preprocess"


@frozen(eq=False)
class Job:
    """One partition to compile, and its program, which is not changed.

    Without the method that it belongs to, nothing else reads the program.
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
            edge_program=record_shapes(self.program),
            backend_id=self.partition.backend_id,
            processed_bytes=result.processed_bytes,
            compile_specs=self._specs(),
            named_data_store_output=result.data_store_output,
        )
        module.meta = {"debug_handle_map": result.debug_handle_map}
        if (info := getattr(result, DELEGATE_INFO, None)) is not None:
            module.meta[DELEGATE_INFO] = info
        return module

    def _specs(self) -> list[CompileSpec]:
        return [CompileSpec(spec.key, spec.value) for spec in self.partition.compile_specs]


@frozen(eq=False)
class Call:
    """One call of a backend: `preprocess` for one job, `preprocess_multimethod` for several.

    Args:
        backend: The class that compiles.
        jobs: The partitions to compile; more than one only if `together`.
        together: The backend shares work or data across partitions and methods.
        plugin: The plugin of all of them.
    """

    backend: type[BackendDetails]
    jobs: tuple[Job, ...]
    together: bool
    plugin: Plugin

    @property
    def first(self) -> Partition:
        """The partition that stands for the call in messages."""
        return self.jobs[0].partition

    @property
    def nodes(self) -> int:
        """Number of nodes of all jobs."""
        return sum(len(job.partition.nodes) for job in self.jobs)

    @property
    def what(self) -> str:
        """The backend and the partition, for messages."""
        return f"{compiler_of(self.first)} on {self.first.where}"

    @property
    def limit_s(self) -> float | None:
        """Seconds that compiling may take; None for any."""
        return self.plugin.limits.compile_timeout_s

    def compile(self, place: str = "") -> list[PreprocessResult]:
        """Compile the jobs, inside the compile context of their plugin; return a result for each.

        In a worker, `place` is such as ` in process 12 of build-3`, for messages.

        Raises:
            CompileError: The backend failed, or took too long.
        """
        try:
            with ExitStack() as stack:
                for job in self.jobs:
                    # Compilers that trace would look for symbols which ExecuTorch's passes lost.
                    mode = keep_ranges(fake_mode(job.program.graph.nodes))
                    stack.enter_context(settled(mode))
                given = self.plugin.name, self.what + place, self.limit_s, "compile_timeout_s"
                stack.enter_context(waiting_for(*given))
                return self._compiled()
        except PluginError as error:
            # Raised by waiting: an error of a backend is a CompileError.
            raise CompileError(error.who, error.what, error.cure) from error

    def _compiled(self) -> list[PreprocessResult]:
        if self.together:
            return self._together()
        preprocess = self.backend.preprocess
        return [
            checked(
                job.partition,
                _guarded(job, functools.partial(preprocess, *job.arguments(self.backend))),
            )
            for job in self.jobs
        ]

    def _together(self) -> list[PreprocessResult]:
        programs: dict[str, list[ExportedProgram]] = {}
        specs: dict[str, list[list[CompileSpec]]] = {}
        for job in self.jobs:
            program, own = job.arguments(self.backend)
            programs.setdefault(job.partition.method, []).append(program)
            specs.setdefault(job.partition.method, []).append(own)
        call = functools.partial(self.backend.preprocess_multimethod, programs, specs)
        partitions = [job.partition for job in self.jobs]
        results = checked_together(partitions, _guarded(self.jobs[0], call))
        # Methods follow each other in the jobs as in the dict, so the lists line up.
        return [result for method in programs for result in results[method]]


@frozen(eq=False)
class Task:
    """A call to be compiled.

    Args:
        key: Its key in the cache; empty without one.
        place: As `Name.place` of its key.
        why: Why its results can't be cached.
        stays: Why it is compiled in this process although there are workers.
    """

    call: Call
    key: str = ""
    place: str = ""
    why: str = ""
    stays: str = ""


@frozen(eq=False)
class Done:
    """A task that was compiled, or failed; if a process died of it, this one must not try."""

    task: Task
    results: list[PreprocessResult] | None = None
    error: CompileError | None = None
    seconds: float = 0.0
    died: bool = False

    def faults(self) -> list[tuple[Partition, CompileError]]:
        """Return the partitions that the backend fails on, with its error on each.

        A backend that compiles several together is given each alone. If it fails on none alone, or
        if a process died of the call, all of them are returned.
        """
        call, error = self.task.call, self.error
        assert error is not None
        all_faults = [(job.partition, error) for job in call.jobs]
        if len(call.jobs) == 1 or self.died:
            return all_faults
        faults = []
        with context(call.plugin, call.first.device):
            for job in call.jobs:
                try:
                    evolve(call, jobs=(job,)).compile()
                except CompileError as fault:
                    faults.append((job.partition, fault))
        return faults or all_faults


def batches(splits: Iterable[Split]) -> list[list[Job]]:
    """Group the partitions of all methods by plugin, backend and device, in plan order.

    One call compiles a group if the backend can.
    """
    together: dict[tuple[str, str, Device], list[Job]] = {}
    for split in splits:
        for own, program in zip(split.partitions, split.programs, strict=True):
            key = (own.plugin, compiler_of(own), own.device)
            together.setdefault(key, []).append(Job(own, program, split))
    return list(together.values())


def calls_of(batch: Sequence[Job], plugin: Plugin) -> list[Call]:
    """Return the calls of a batch; to be called inside the compile context of its plugin."""
    backend = find_backend(batch[0].partition, plugin)
    if has_own(backend, "preprocess_multimethod"):
        return [Call(backend, tuple(batch), True, plugin)]
    return [Call(backend, (job,), False, plugin) for job in batch]


@contextmanager
def context(plugin: Plugin, device: Device) -> Iterator[Mapping[str, str]]:
    """Enter the compile context of a plugin; yield the environment variables it changed."""
    before = dict(os.environ)
    with answers.compile_context(plugin, device):
        yield {k: v for k, v in os.environ.items() if before.get(k) != v}


def _guarded(job: Job, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise compile_error(job, first_line(error) + place_of(error)) from error


def compile_error(job: Job, what: str) -> CompileError:
    """Return an error that names plugin, partition, method and the user's modules."""
    partition = job.partition
    paths = (path for node in job.program.graph.nodes for path in module_paths(node)[-1:])
    modules = list(dict.fromkeys(filter(None, paths)))
    of = f" of {listed(modules, _NAMED)}" if modules else ""
    return CompileError(
        partition.plugin,
        f"{compiler_of(partition)} failed on {partition.where} "
        f"({counted(len(partition.nodes), 'node')} from {partition.nodes[0]}){of}: {what}",
        'leave the plugin out, set on_failure = "fallback", or see the cause chained below',
    )
