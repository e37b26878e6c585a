"""Faults of XNNPACK's compiler that etdev fixes before plugins are asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.export import ExportedProgram

from etdev.graph import channels_last_weights, with_contiguous_weights
from etdev.quirks import Quirk, Stage


def _make_contiguous(program: ExportedProgram, _: Sequence[Any]) -> ExportedProgram:
    return with_contiguous_weights(program)


XNNPACK_CHANNELS_LAST_WEIGHTS = Quirk(
    name="xnnpack-channels-last-weights",
    stage=Stage.SOURCE,
    summary="XNNPACK's compiler fails on the weight of a convolution that is stored channels last.",
    upstream="not reported; executorch/backends/xnnpack/operators/node_visitor.py, "
    "get_serialized_buffer_index",
    affects="executorch<1.6",
    find=channels_last_weights,
    fix=_make_contiguous,
)
QUIRKS = (XNNPACK_CHANNELS_LAST_WEIGHTS,)
