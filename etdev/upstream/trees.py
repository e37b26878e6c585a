"""Torch's pytrees, and files of exported programs, whose inputs and outputs are such trees."""

from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.pt2_archive._package import load_pt2
from torch.utils import _pytree as pytree

__all__ = ["flat", "load_exported", "pytree"]


def flat(value: Any) -> list[Any]:
    """Flatten inputs or outputs of eager PyTorch into the order of a .pte."""
    return [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]


def load_exported(path: Path) -> ExportedProgram:
    """Load a file as torch.export.load does, but raise the error that this only logs."""
    try:
        return torch.export.load(path)
    except RuntimeError:
        load_pt2(str(path))
        raise
