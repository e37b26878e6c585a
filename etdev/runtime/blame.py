"""Blame: which delegate or portable kernel of a method goes wrong, each run by itself."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from torch.fx import Node

from etdev.delegate.split import split
from etdev.errors import EtdevError
from etdev.files import in_scratch, scratch
from etdev.graph.nodes import describe, op_name
from etdev.graph.source import where
from etdev.runtime.bisect import Bisection, alone, emitted
from etdev.runtime.isolation import Job, Result, isolated
from etdev.runtime.tolerance import Tolerance
from etdev.runtime.wrong import wrong
from etdev.schema.partition import Partition
from etdev.schema.pins import PORTABLE


@frozen(eq=False)
class _Trial:
    """A delegate or kernel as a program of its own.

    Args:
        name: What to call it if it is wrong.
        program: The bytes of its .pte.
        inputs: What eager PyTorch gives it.
        expected: What eager PyTorch computes from that.
    """

    name: str
    program: bytes
    inputs: Sequence[Any]
    expected: Sequence[Any]


def culprit(bisection: Bisection, tolerance: Tolerance) -> str | None:
    """Name the first delegate, else the first portable kernel, that fails or departs from eager.

    Each gets what eager PyTorch computes for its inputs, so none is blamed for an earlier one.

    Returns:
        Its name and what is wrong with it; None if each is right by itself.
    """
    listed = [*_delegates(bisection), *_kernels(bisection)]
    with scratch() as folder:
        jobs = []
        for index, trial in enumerate(listed):
            path = Path(folder) / f"{index}.pte"
            with in_scratch():
                path.write_bytes(trial.program)
            jobs.append(Job(path, "forward", [trial.inputs]))
        for trial, result in zip(listed, isolated(jobs), strict=True):
            if problem := _problem(trial, result, tolerance):
                return f"{trial.name}: {problem}"
    return None


def _problem(trial: _Trial, result: Result, tolerance: Tolerance) -> str | None:
    if result.failure:
        return result.failure
    return wrong(result.calls[0].outputs, trial.expected, tolerance)


def _delegates(bisection: Bisection) -> Iterator[_Trial]:
    partitions = [partition for partition in bisection.plan.partitions if partition.outputs]
    pieces = split(bisection.program, partitions)
    values = _values(bisection, partitions)
    for partition, program in zip(partitions, pieces.programs, strict=True):
        inputs, expected = _ends(partition, values)
        delegate = bisection.delegate(partition, program)
        name = f"delegate {partition.name} ({partition.plugin}, {partition.backend_id})"
        yield _Trial(name, alone(delegate, inputs, bisection.quirks), inputs, expected)


def _kernels(bisection: Bisection) -> Iterator[_Trial]:
    """The portable ops, each as a program."""
    owned = {name for partition in bisection.plan.partitions for name in partition.nodes}
    nodes = [node for node in bisection.program.graph.nodes if _is_kernel(node, owned)]
    partitions = [_partition(bisection.plan.method, node) for node in nodes]
    pieces = split(bisection.program, partitions)
    values = _values(bisection, partitions)
    for node, partition, program in zip(nodes, partitions, pieces.programs, strict=True):
        inputs, expected = _ends(partition, values)
        try:
            buffer = emitted(program, bisection.quirks)
        except EtdevError:
            # Some can't stand alone, such as one that returns its input.
            continue
        yield _Trial(
            f"kernel of {op_name(node)} ({node.name}{where(node)})", buffer, inputs, expected
        )


def _is_kernel(node: Node, owned: set[str]) -> bool:
    call = node.op == "call_function" and node.target is not operator.getitem
    return call and node.name not in owned and bool(node.users)


def _partition(method: str, node: Node) -> Partition:
    """One op as if it were a partition: with its getitems, and with its branches."""
    items = [user for user in node.users if user.target is operator.getitem]
    branches = [source for source in node.all_input_nodes if source.op == "get_attr"]
    sources = [source for source in node.all_input_nodes if source.op != "get_attr"]
    several = isinstance(node.meta.get("val"), (tuple, list))
    return Partition(
        name=node.name,
        method=method,
        plugin=PORTABLE,
        backend_id="",
        nodes=tuple(n.name for n in (*branches, node, *(items if several else ()))),
        inputs=tuple(describe(source) for source in sources),
        outputs=tuple(describe(n) for n in (items if several else (node,))),
    )


def _values(bisection: Bisection, partitions: Sequence[Partition]) -> Mapping[str, Any]:
    ends = [(*partition.inputs, *partition.outputs) for partition in partitions]
    return bisection.eager({tensor.name for tensors in ends for tensor in tensors})


def _ends(partition: Partition, values: Mapping[str, Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The values that enter and leave a partition in eager PyTorch."""
    inputs = [values[tensor.name] for tensor in partition.inputs]
    return inputs, [values[tensor.name] for tensor in partition.outputs]
