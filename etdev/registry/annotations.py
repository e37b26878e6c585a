"""Annotations: what plugins tell their backends' compilers on the nodes of a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etdev.errors import PluginError
from etdev.registry.plugin import Plugin
from etdev.schema.plan import MethodPlan, Partition

# What goes to the meta of each node, by its name.
Annotations = Mapping[str, Mapping[str, Any]]


def annotations_of(plan: MethodPlan, plugins: Sequence[Plugin]) -> dict[str, Annotations]:
    """Ask the owner of each partition of a method.

    Returns:
        For each partition that has some, by the name of the partition.

    Raises:
        PluginError: An answer is no mapping, or names a node that isn't the partition's.
    """
    owners = {plugin.name: plugin for plugin in plugins}
    found = {
        part.name: _checked(part, owners[part.plugin].ask("annotate", partition=part))
        for part in plan.partitions
    }
    return {name: answer for name, answer in found.items() if answer}


def _checked(partition: Partition, answer: Any) -> Annotations:
    if answer is None:
        return {}
    if not isinstance(answer, Mapping) or not all(
        isinstance(meta, Mapping) for meta in answer.values()
    ):
        raise PluginError(
            partition.plugin,
            f"annotate returned {answer!r} for {partition.where}",
            'return a mapping, such as {"aten_add_tensor": {"key": 1}}',
        )
    known = {*partition.nodes, *(tensor.name for tensor in partition.inputs)}
    if strange := answer.keys() - known - {constant.name for constant in partition.constants}:
        raise PluginError(
            partition.plugin,
            f"annotate names {min(strange)!r}, which is not in {partition.where}",
            "name its nodes, inputs or constants",
        )
    return answer
