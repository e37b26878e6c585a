"""Calls of programs in executorch.runtime, for a process that has no code of etdev."""

from typing import Any


def call(path: str, calls: list[list[Any]]) -> list[tuple[list[Any], list[Any]]]:
    """Return outputs and inputs after each call of a program."""
    import executorch.kernels.quantized  # noqa: F401
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(path).load_method("forward")
    return [(list(method.execute(inputs)), inputs) for inputs in calls]
