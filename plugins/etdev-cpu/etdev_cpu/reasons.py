"""Reasons: why XNNPACK's matcher refuses nodes, which it says in its debug log alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field
from executorch.exir.backend.utils import WhyNoPartition

_CONFIG_LOGGERS = "executorch.backends.xnnpack.partition.config"


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
