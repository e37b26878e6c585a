"""Compilation: what the cache doesn't have is compiled by ExecuTorch's backends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from attrs import define, field
from executorch.exir.backend.backend_details import PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule

from etdev.delegate.calls import Call, calls_of
from etdev.delegate.jobs import Job, batches, compiler_of, jobs_of
from etdev.delegate.split import Split, settled_heap
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.outcomes import Outcome
from etdev.schema.plan import Partition
from etdev.waiting import waiting_for

Progress = Callable[[int, int, Partition], None]


@define(eq=False)
class Compiler:
    """Compiles the partitions of a program.

    Args:
        plugins: Asked for the context in which their partitions are compiled.
        progress: Told before each call of a backend: how many partitions are done, how many there
            are, which is next.
        outcomes: What became of each partition, in the order of compilation.
    """

    plugins: Sequence[Plugin]
    progress: Progress | None = None
    outcomes: list[Outcome] = field(factory=list, init=False)

    def compile(self, splits: Mapping[str, Split]) -> dict[str, list[LoweredBackendModule]]:
        """Compile every partition of every method.

        Args:
            splits: The methods, split into programs.

        Returns:
            For each method its compiled partitions in plan order.

        Raises:
            CompileError: A backend is not loaded or failed; the text names plugin, partition and
                method.
        """
        jobs = jobs_of(splits.values())
        owners = {plugin.name: plugin for plugin in self.plugins}
        lowered: dict[tuple[str, str], LoweredBackendModule] = {}
        for batch in batches(jobs):
            first = batch[0].partition
            with settled_heap(), answers.compile_context(owners[first.plugin], first.device):
                for call in calls_of(batch):
                    if self.progress:
                        self.progress(len(lowered), len(jobs), call.first)
                    for job, result in zip(call.jobs, self._results(call), strict=True):
                        partition = job.partition
                        lowered[partition.method, partition.name] = _module(job, result)
        return {
            method: [lowered[method, partition.name] for partition in split.partitions]
            for method, split in splits.items()
        }

    def _results(self, call: Call) -> list[PreprocessResult]:
        start = time.perf_counter()
        (limit_s,) = {
            p.limits.compile_timeout_s for p in self.plugins if p.name == call.first.plugin
        }
        what = f"{compiler_of(call.first)} on {call.first.where}"
        with waiting_for(call.first.plugin, what, limit_s):
            results = call.compile()
        self._note(call, "compiled", seconds=time.perf_counter() - start)
        return results

    def _note(
        self, call: Call, state: str, *, why: str = "", seconds: float = 0.0, key: str = ""
    ) -> None:
        for number, job in enumerate(call.jobs):
            partition = job.partition
            self.outcomes.append(
                Outcome(
                    partition.plugin,
                    partition.method,
                    partition.name,
                    state,
                    why,
                    0.0 if number else seconds,
                    key,
                )
            )


def _module(job: Job, result: PreprocessResult) -> LoweredBackendModule:
    partition = job.partition
    module = LoweredBackendModule(
        edge_program=job.program,
        backend_id=partition.backend_id,
        processed_bytes=result.processed_bytes,
        compile_specs=[CompileSpec(spec.key, spec.value) for spec in partition.compile_specs],
        named_data_store_output=result.data_store_output,
    )
    module.meta = {"debug_handle_map": result.debug_handle_map}
    if getattr(result, "_delegate_info_meta", None) is not None:
        module.meta["_delegate_info_meta"] = result._delegate_info_meta
    return module
