"""Torch's pytrees, and files of exported programs, whose inputs and outputs are such trees.

Importing this file does not import torch's compilers, which a run of a program doesn't need.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["flat", "load_exported", "pytree"]


def flat(value: Any) -> list[Any]:
    """Flatten inputs or outputs of eager PyTorch into the order of a .pte."""
    return [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]


def load_exported(path: Path) -> ExportedProgram:
    """Load a file as torch.export.load does, but raise the error that this only logs."""
    from torch.export.pt2_archive._package import load_pt2

    try:
        return torch.export.load(path)
    except RuntimeError:
        load_pt2(str(path))
        raise
