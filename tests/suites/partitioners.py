"""A pytest plugin: tests of ExecuTorch that give it a Partitioner, run three times.

`-p suites.partitioners`, with the tests. Once as they are, and those that passed a Partitioner on
the way again with it adapted: as `etdev.partitioner([etdev.adapt(...)])` in the same calls, and
with `Lowerer([etdev.adapt(...)])` instead of them. Each outcome is a line of JSON in the file that
ETDEV_OUTCOMES names.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from _pytest.runner import runtestprotocol
from attrs import define
from executorch import exir
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, program
from executorch.exir.backend.backend_api import MethodProgramsPartitionerSpec, to_backend
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.program import _program
from torch.export import ExportedProgram

import etdev
from etdev import Lowerer, Probe, hookimpl
from etdev.composed_partitioner import ComposedPartitioner
from etdev.edge.conversion import Settings
from etdev.registry.adapted import AdaptedPartitioner

SEED = 0
MODES = ("theirs", "partitioner", "host")


class State:
    """The mode of the test that runs, and whether it passed a Partitioner on."""

    mode = "theirs"
    partitioned = False


def adapted(partitioners: Iterable[Partitioner]) -> list[AdaptedPartitioner]:
    """A plugin of each."""
    return [etdev.adapt(item, name=f"adapted_{at}") for at, item in enumerate(partitioners)]


def composed(partitioners: Sequence[Partitioner], method: str) -> list[Partitioner]:
    """One partitioner of all; what is one already stays."""
    if not partitioners or isinstance(partitioners[0], ComposedPartitioner):
        return list(partitioners)
    return [etdev.partitioner(adapted(partitioners), method=method)]


def as_lists(partitioner: Any, methods: Iterable[str]) -> dict[str, list[Partitioner]]:
    """What ExecuTorch's calls take for partitioners, by method."""
    if not isinstance(partitioner, dict):
        partitioner = dict.fromkeys(methods, partitioner or [])
    State.partitioned |= any(partitioner.values())
    return {
        name: list(items) if isinstance(items, Sequence) else [items]
        for name, items in partitioner.items()
    }


@define(eq=False)
class ByMethod:
    """A plugin that is another one in each method."""

    name: str
    plugins: Mapping[str, AdaptedPartitioner]

    @hookimpl
    def probe(self):
        return Probe(())

    @hookimpl
    def keep_whole(self, program, method):
        plugin = self.plugins.get(method)
        return plugin and plugin.keep_whole(program, method)

    @hookimpl
    def claim_nodes(self, program, method, taken, partitions):
        plugin = self.plugins.get(method)
        return plugin.claim_nodes(program, method, taken, partitions) if plugin else ()

    @hookimpl
    def claim_constants(self, program, partition):
        return self.plugins[partition.method].claim_constants(program, partition)

    @hookimpl
    def resolve_device(self, partition):
        return self.plugins[partition.method].resolve_device(partition)

    @hookimpl
    def annotate(self, partition):
        return self.plugins[partition.method].annotate(partition)


def through_host(
    programs: Mapping[str, ExportedProgram],
    partitioners: Mapping[str, Sequence[Partitioner]],
    settings: Settings,
) -> EdgeProgramManager:
    """Lower all methods; the plugins are the partitioners in their order."""
    by_method = {name: adapted(items) for name, items in partitioners.items()}
    plugins = []
    for place in range(max(map(len, by_method.values()))):
        here = {name: items[place] for name, items in by_method.items() if place < len(items)}
        plugins.append(ByMethod(f"adapted_{place}", here))
    return Lowerer(plugins).lower(dict(programs), settings=settings).edge


LOWER = program._program.to_edge_transform_and_lower


@functools.wraps(LOWER)
def to_edge_transform_and_lower(
    programs,
    transform_passes=None,
    partitioner=None,
    constant_methods=None,
    compile_config=None,
    generate_etrecord=False,
):
    named = programs if isinstance(programs, dict) else {"forward": programs}
    lists = as_lists(partitioner, named)
    if State.mode == "host" and any(lists.values()):
        settings = Settings(
            compile_config=compile_config or EdgeCompileConfig(),
            transform_passes=transform_passes,
            constant_methods=constant_methods,
        )
        return through_host(named, lists, settings)
    if State.mode == "partitioner":
        partitioner = {name: composed(items, name) for name, items in lists.items()}
    return LOWER(
        programs, transform_passes, partitioner, constant_methods, compile_config, generate_etrecord
    )


for module in (exir, program, _program):
    module.to_edge_transform_and_lower = to_edge_transform_and_lower

ONE, SEVERAL = (
    to_backend.dispatch(ExportedProgram),
    to_backend.dispatch(MethodProgramsPartitionerSpec),
)
UNCHECKED = Settings(EdgeCompileConfig(_check_ir_validity=False))


@to_backend.register(ExportedProgram)
def to_backend_of_one(edge_program, partitioner_instance):
    lists = as_lists(partitioner_instance, ["forward"])
    if State.mode == "host" and any(lists.values()):
        return through_host({"forward": edge_program}, lists, UNCHECKED).exported_program()
    if State.mode == "partitioner":
        [partitioner_instance] = composed(lists["forward"], "forward")
    return ONE(edge_program, partitioner_instance)


@to_backend.register(MethodProgramsPartitionerSpec)
def to_backend_of_several(spec):
    programs = spec.method_to_edge_program
    lists = as_lists(spec.method_to_partitioner, programs)
    if State.mode == "host" and any(lists.values()):
        edge = through_host(programs, lists, UNCHECKED)
        return {name: edge.exported_program(name) for name in programs}
    if State.mode == "partitioner":
        one = {name: composed(items, name)[0] for name, items in lists.items()}
        spec = MethodProgramsPartitionerSpec(programs, one)
    return SEVERAL(spec)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    for mode in MODES:
        State.mode = mode
        if mode == "theirs":
            State.partitioned = False
        elif not State.partitioned:
            break
        torch.manual_seed(SEED)
        record(item, mode, runtestprotocol(item, log=False, nextitem=item))
    item.session._setupstate.teardown_exact(nextitem)
    return True


def record(item: pytest.Item, mode: str, reports: Sequence[pytest.TestReport]) -> None:
    """Write one line."""
    outcomes = [report.outcome for report in reports]
    worst = next((name for name in ("failed", "skipped") if name in outcomes), "passed")
    texts = [r.longreprtext if r.failed else str(r.longrepr) for r in reports if not r.passed]
    line = {
        "test": item.nodeid,
        "mode": mode,
        "partitioned": State.partitioned,
        "result": worst,
        "text": texts[0][-3000:] if texts else None,
        "seconds": sum(report.duration for report in reports),
    }
    with Path(os.environ["ETDEV_OUTCOMES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
