"""Blame: the delegate or portable kernel of a method that is wrong, found by running each alone."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import EtdevError
from etdev.graph.nodes import describe, op_name
from etdev.graph.source import where
from etdev.pte.read import methods_in
from etdev.runtime.bisect import Bisection, Trial
from etdev.runtime.compare import Tolerance, mismatch
from etdev.runtime.run import run_method
from etdev.schema.partition import Partition
from etdev.schema.pins import PORTABLE


def culprit(bisection: Bisection, tolerance: Tolerance) -> str | None:
    """Name the first delegate, else the first portable kernel, that fails or departs from eager.

    Each gets eager PyTorch's values for its inputs, so none is blamed for an earlier one.
    """
    for trial in chain(bisection.delegates(), _kernels(bisection)):
        (method,) = methods_in(trial.program)
        outcome = run_method(trial.program, method, [trial.inputs])
        problem = outcome.failure
        if not problem:
            problem = mismatch(outcome.values[0].outputs, trial.expected, tolerance)
        if problem:
            return f"{_name(bisection, trial.partition)}: {problem}"
    return None


def _name(bisection: Bisection, partition: Partition) -> str:
    if partition.plugin != PORTABLE:
        return f"delegate {partition.name} ({partition.plugin}, {partition.backend_id})"
    node = next(n for n in bisection.program.graph.nodes if n.name == partition.name)
    return f"kernel of {op_name(node)} ({node.name}{where(node)})"


def _kernels(bisection: Bisection) -> Iterator[Trial]:
    """Make a trial of each op that no delegate owns."""
    owned = {name for partition in bisection.plan.partitions for name in partition.nodes}
    partitions = [
        _partition(bisection.plan.method, node)
        for node in bisection.program.graph.nodes
        if node.op == "call_function" and node.target is not operator.getitem
        if node.name not in owned and node.users
    ]

    def emit(_: Partition, program: ExportedProgram, __: Sequence[Any]) -> bytes | None:
        try:
            return bisection.emit(program)
        except EtdevError:
            # Some ops can't stand alone, such as one that returns its input.
            return None

    return bisection.trials(partitions, emit)


def _partition(method: str, node: Node) -> Partition:
    """Make a partition of one op, with its getitems and branches."""
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
