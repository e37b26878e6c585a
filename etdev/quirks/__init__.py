"""Faults of torch and ExecuTorch, each with what etdev does about it: the order is the pipeline."""

from __future__ import annotations

from etdev.quirks import emission, interface, scalars
from etdev.schema.quirk import Quirk

QUIRKS: tuple[Quirk, ...] = (*interface.QUIRKS, *scalars.QUIRKS, *emission.QUIRKS)
