"""Faults of torch and ExecuTorch, each with what etdev does about it: the order is the pipeline."""

from __future__ import annotations

from etdev.quirks import emission, interface, mutation, scalars
from etdev.schema.quirk import Quirk

QUIRKS: tuple[Quirk, ...] = (
    *interface.QUIRKS,
    *mutation.QUIRKS,
    *scalars.QUIRKS,
    *emission.QUIRKS,
    # Last, since torch can't trace a program whose arguments have been flattened.
    interface.UNWRITABLE_NESTING,
)
