"""One call of a backend's compiler, with the partitions that it compiles together."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import frozen
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from etdev.delegate.backends import compiler_of, find_backend, has_own
from etdev.delegate.jobs import Job
from etdev.delegate.results import checked, checked_together
from etdev.errors import CompileError, PluginError, first_line
from etdev.graph.nodes import modules_of
from etdev.graph.symbols import fake_mode, settled
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.registry.watchdog import waiting_for
from etdev.schema.device import Device
from etdev.schema.partition import Partition
from etdev.upstream.process import settled_heap

# More source modules than these are counted instead of named.
_NAMED = 5


@frozen(eq=False)
class Call:
    """One call of a backend: `preprocess` for one job, `preprocess_multimethod` for several.

    Args:
        backend: The class that compiles.
        jobs: What it compiles; more than one only if `together`.
        together: The backend shares work or data across partitions and methods.
    """

    backend: type[BackendDetails]
    jobs: tuple[Job, ...]
    together: bool

    @property
    def first(self) -> Partition:
        """The partition that stands for the call in messages."""
        return self.jobs[0].partition

    @property
    def size(self) -> int:
        """Number of nodes of all jobs."""
        return sum(len(job.partition.nodes) for job in self.jobs)

    @property
    def what(self) -> str:
        """The backend and the partition, for messages."""
        return f"{compiler_of(self.first)} on {self.first.where}"

    def compile(self, limit_s: float | None = None, place: str = "") -> list[PreprocessResult]:
        """Compile the jobs, inside the compile context of their plugin.

        Args:
            limit_s: Seconds that it may take; None for any.
            place: Where that is, if it isn't this process, such as ` in process 12 of build-3`.

        Returns:
            A result for each job.

        Raises:
            CompileError: The backend failed, or took too long; the text names plugin, partition and
                method.
        """
        try:
            with ExitStack() as stack:
                for job in self.jobs:
                    # Compilers that trace would look for symbols which ExecuTorch's passes lost.
                    stack.enter_context(settled(fake_mode(job.program.graph.nodes)))
                stack.enter_context(waiting_for(self.first.plugin, self.what + place, limit_s))
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


@contextmanager
def context(plugin: Plugin, device: Device) -> Iterator[Mapping[str, str]]:
    """Enter the compile context of a plugin; yield the environment variables it changed."""
    before = dict(os.environ)
    with settled_heap(), answers.compile_context(plugin, device):
        yield {k: v for k, v in os.environ.items() if before.get(k) != v}


def calls_of(batch: Sequence[Job], plugin: Plugin) -> list[Call]:
    """Return the calls of a batch; to be called inside the compile context of its plugin.

    Raises:
        CompileError: The backend is not loaded, or there are two with its name.
    """
    backend = find_backend(batch[0].partition, plugin)
    if has_own(backend, "preprocess_multimethod"):
        return [Call(backend, tuple(batch), True)]
    return [Call(backend, (job,), False) for job in batch]


def _guarded(job: Job, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise compile_error(job, first_line(error)) from error


def compile_error(job: Job, what: str) -> CompileError:
    """Return an error that names plugin, partition, method and the user's modules."""
    partition = job.partition
    modules = [path for path in modules_of(job.program.graph.nodes) if path]
    more = [f"{len(modules) - _NAMED} more"] if len(modules) > _NAMED else []
    of = f" of {', '.join([*modules[:_NAMED], *more])}" if modules else ""
    return CompileError(
        partition.plugin,
        f"{compiler_of(partition)} failed on {partition.where} "
        f"({len(partition.nodes)} nodes from {partition.nodes[0]}){of}: {what}",
        'leave the plugin out, set on_failure = "fallback", or see the cause chained below',
    )
