"""Decoders exported by transformers itself, with their values checked."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.exporters.exporter_executorch import ExecutorchConfig, ExecutorchExporter
from transformers.exporters.utils import decompose_for_generation


class WrongValues(Exception):
    """A program whose logits are not those of the model."""


def by_exporter(model: Any, ids: torch.Tensor, length: int) -> dict[str, tuple[Any, Any]]:
    """Return the program of each method, with the inputs that it was exported with.

    Args:
        model: A decoder, which is not changed.
        ids: A prompt, (1, n).
        length: The positions of the cache.
    """
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    static = GenerationConfig(cache_implementation="static", max_cache_len=length)
    parts = decompose_for_generation(copy.deepcopy(model), inputs, generation_config=static)
    return {
        name: (
            ExecutorchExporter().export(part, dict(own), config=ExecutorchConfig("xnnpack")),
            own,
        )
        for name, (part, own) in parts.items()
    }


def saved(programs: dict[str, tuple[Any, Any]], folder: Path) -> int:
    """Write the programs, and return the bytes of their .pte files."""
    for name, (program, _) in programs.items():
        program.save_pretrained(folder / name)
    return sum(file.stat().st_size for name in programs for file in (folder / name).rglob("*.pte"))


@torch.no_grad()
def check(
    programs: dict[str, tuple[Any, Any]], model: Any, ids: torch.Tensor, tolerance: float
) -> float:
    """Run each program, and compare its logits with those of the model without a cache.

    Returns:
        The largest error, relative to the largest logit.

    Raises:
        WrongValues: They differ by more than the tolerance, relative to the largest one.
    """
    known, errors = ids[:, :0], []
    for name, (program, own) in programs.items():
        known = torch.cat([known, own["input_ids"]], 1)
        wanted = model(input_ids=known).logits[:, -1]
        found = program(**copy.deepcopy(own))["logits"][:, -1]
        errors.append(agree(name, found, wanted, tolerance))
    return max(errors)


def agree(name: str, found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> float:
    """Return the error of logits, relative to the largest one.

    Raises:
        WrongValues: They differ by more than the tolerance, relative to the largest one.
    """
    error = float((found - wanted).abs().max() / wanted.abs().max())
    if not error <= tolerance:
        raise WrongValues(f"the logits of {name} differ by {error:.1e}")
    return error
