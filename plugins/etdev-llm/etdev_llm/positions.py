"""Lengths at which a decoder changes its computation, as its configuration names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from etdev.errors import SourceError

# Fields of configurations that count positions: max_position_embeddings, sliding_window,
# attention_chunk_size, n_ctx, floor_scale. Others count layers, buckets or channels.
_POSITIONS = re.compile(
    r"position|window|chunk|context|n_ctx|max_seq_len|max_length|distance|floor"
)
_OTHERS = re.compile(r"layers|buckets|blocks|heads|dim|kernel|interval|pattern|mamba|temperature")
# Rotary embeddings whose frequencies depend on the length of the sequence.
_BY_LENGTH = ("dynamic", "longrope")


def boundaries(config: Any, length: int) -> list[int]:
    """Return the limits in a configuration that 2 to `length` tokens reach, in ascending order.

    Chunks and scales change at each multiple, so twice a limit is one, too.
    """

    def named(fields: Mapping[str, Any]) -> Iterator[int]:
        for name, value in fields.items():
            if isinstance(value, dict):
                yield from named(value)
            elif isinstance(value, bool) or not isinstance(value, int):
                continue
            elif _POSITIONS.search(name) and not _OTHERS.search(name):
                yield from (value, 2 * value)

    # Some configurations keep names of their own, such as n_positions.
    fields = dict(config.get_text_config().to_dict())
    fields["max_position_embeddings"] = getattr(config, "max_position_embeddings", None)
    return sorted({n for n in named(fields) if 2 <= n <= length})


def fix_frequencies(model: Any, length: int) -> None:
    """Make the frequencies of rotary embeddings constants, for up to `length` tokens.

    Raises:
        SourceError: They change within that length, when keys in the cache have the old ones.
    """
    edges = boundaries(model.config, length - 1)

    def check(module: nn.Module, kind: str, **layer: str) -> None:
        edge = _last_change(module, edges, length, layer) if kind in _BY_LENGTH else None
        if edge:
            what = f"its {kind} changes the frequencies of all positions beyond {edge} tokens"
            cure = f"give at most {edge} tokens"
            if kind == "longrope":
                cure += ", or replace short_factor with long_factor in its configuration"
            raise SourceError(type(model).__name__, what, cure)

    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        # Some embeddings have frequencies for each type of layer.
        if isinstance(kinds, dict):
            for layer, kind in kinds.items():
                check(module, kind, layer_type=layer)
            module.rope_type = dict.fromkeys(kinds, "default")
        elif kinds:
            check(module, kinds)
            module.rope_type = "default"


@torch.no_grad()
def _last_change(
    module: nn.Module, edges: list[int], length: int, layer: Mapping[str, str]
) -> int | None:
    """Return the last of `edges` beyond which the embedding of earlier positions changes."""
    like, positions = torch.zeros(1), torch.arange(length)[None]
    whole = module(like, positions, **layer)
    for edge in reversed(edges):
        part = module(like, positions[:, :edge], **layer)
        if not all(torch.equal(a, b[:, :edge]) for a, b in zip(part, whole, strict=True)):
            return edge
    return None
