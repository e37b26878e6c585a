"""Checks: whether XNNPACK takes a node, as the configs of its partitioner say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import first_line


class Checks:
    """Has configs refuse the nodes that they fail on, instead of failing on the whole program.

    Some read arguments that a call may leave out, some calculate with numbers that are symbolic.

    Args:
        configs: The configs of one XnnpackPartitioner; they are changed.

    Attributes:
        failures: Why configs failed, by node name.
    """

    def __init__(self, configs: Iterable[Any]) -> None:
        self.failures: dict[str, str] = {}
        for config in configs:
            config.check_constraints = self._refusing(config.check_constraints, False)
            config.get_partition = self._refusing(config.get_partition, ())

    def _refusing(self, asked: Callable[..., Any], refusal: object) -> Callable[..., Any]:
        def ask(node: Node, program: ExportedProgram) -> Any:
            try:
                return asked(node, program)
            except Exception as error:
                self.failures[node.name] = f"XNNPACK's check raised {first_line(error)}"
                return refusal

        return ask
