"""XNNPACK's matcher: the configs of its partitioner, and the reasons in its debug log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import define, field
from executorch.exir.backend.utils import WhyNoPartition
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import first_line

_CONFIG_LOGGERS = "executorch.backends.xnnpack.partition.config"


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


@define(eq=False)
class _Listener(logging.Handler):
    reasons: dict[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        super().__init__(logging.DEBUG)

    def handle(self, record: logging.LogRecord) -> bool:
        # The message is the WhyNoPartition object itself; read it now, it is reused for the next.
        if isinstance(record.msg, WhyNoPartition) and record.msg.node is not None:
            self.reasons.setdefault(record.msg.node.name, record.msg.reason)
        return True


@contextmanager
def reasons_told() -> Iterator[dict[str, str]]:
    """Collect why XNNPACK refuses nodes, by node name; it says so only in its debug log."""
    listener = _Listener()
    names = [n for n in logging.root.manager.loggerDict if n.startswith(_CONFIG_LOGGERS)]
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(listener)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield listener.reasons
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(listener)
            logger.setLevel(level)
            logger.propagate = propagate
