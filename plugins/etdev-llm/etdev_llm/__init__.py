"""Decoders of transformers in one .pte: prefill and decode, with common weights and one cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etdev_llm.methods import Generation, generation

__all__ = ["Generation", "generation"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from etdev_llm import methods

    return getattr(methods, name)
