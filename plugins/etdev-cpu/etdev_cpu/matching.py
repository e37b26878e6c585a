"""XNNPACK's matcher: the configs of its partitioner, and the reasons that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from executorch.exir.backend.utils import WhyNoPartition
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import first_line
from etdev_cpu.reasons import in_words, of_dtypes


def catch_failures(configs: Iterable[Any]) -> Mapping[str, str]:
    """Have configs refuse the nodes that they fail on, instead of failing on the whole program.

    Some read arguments that a call may leave out, some calculate with numbers that are symbolic.

    Args:
        configs: The configs of one XnnpackPartitioner; they are changed.

    Returns:
        Why configs failed, by node name; filled while they are asked.
    """
    failures: dict[str, str] = {}

    def refusing(asked: Callable[..., Any], refusal: object) -> Callable[..., Any]:
        def ask(node: Node, program: ExportedProgram) -> Any:
            try:
                return asked(node, program)
            except Exception as error:
                failures[node.name] = f"XNNPACK's check raised {first_line(error)}"
                return refusal

        return ask

    for config in configs:
        config.check_constraints = refusing(config.check_constraints, False)
        config.get_partition = refusing(config.get_partition, ())
    return failures


@contextmanager
def reasons_told() -> Iterator[dict[str, str]]:
    """Collect why XNNPACK refuses nodes, by node name; it says so only in its debug log."""
    reasons: dict[str, str] = {}

    def tell(_: WhyNoPartition, node: Node, reason: str) -> None:
        if reason == "invalid dtype":
            told = of_dtypes(node.all_input_nodes)
        else:
            told = in_words(reason) or f"XNNPACK: {reason}"
        reasons.setdefault(node.name, told)

    with patch.object(WhyNoPartition, "__call__", tell):
        yield reasons
