"""Torch's logs."""

from __future__ import annotations


def set_log_level(level: int) -> None:
    """Have all of torch's loggers show records from a level on; imports torch."""
    import torch

    torch._logging.set_logs(all=level)  # type: ignore[attr-defined]
