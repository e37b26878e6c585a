"""Memory planning: ExecuTorch's passes, given what they ask for again and again only once.

They ask the signature which inputs are buffers for every node and every value, and it goes through
all inputs each time: with 600 buffers that is a third of the time of emission, with twice as many
four times as much.
"""

from __future__ import annotations

from typing import Any

from torch.export import ExportGraphSignature

from etdev.pte.signatures import settled


class Planning:
    """A memory planning pass, whose signature's mappings are made once.

    Args:
        inner: The pass; all else is asked and told of it.
    """

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name: str) -> Any:
        # Before there is one: when it is copied.
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    def run(self, module: Any, signature: ExportGraphSignature) -> Any:
        """Plan the memory of a method; a pass of memory planning changes no signature."""
        return self.inner.run(module, settled(signature))


def planning(config: Any) -> Any:
    """A setting for memory planning, a pass or a dict of them, in that way."""
    if isinstance(config, dict):
        return {name: planning(one) for name, one in config.items()}
    return Planning(config) if hasattr(config, "run") else config
