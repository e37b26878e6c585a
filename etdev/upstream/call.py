"""Calls of ExecuTorch, whose errors name the stage that made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etdev.errors import EtdevError, LoweringError, first_line


def guarded(
    stage: str, call: Callable[[], Any], name_cause: Callable[[Exception], None] | None = None
) -> Any:
    """Call a function of ExecuTorch; its errors become a LoweringError that names the stage.

    Args:
        stage: Its name.
        call: The call.
        name_cause: Given the error, raises a more specific one if it can.
    """
    try:
        return call()
    except EtdevError:
        raise
    except Exception as error:
        if name_cause:
            name_cause(error)
        raise LoweringError(
            stage, f"ExecuTorch failed with {first_line(error)}", "the cause is chained below"
        ) from error
