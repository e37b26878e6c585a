"""Faults of torch and ExecuTorch, each with what etdev does about it: the order is the pipeline."""

from __future__ import annotations

from etdev.quirks import (
    assertions,
    buffers,
    control_flow,
    emission,
    export,
    interface,
    memory_format,
    mutation,
    promotion,
    repeatability,
    scalars,
    sharing,
    sizes,
    state,
)
from etdev.quirks.emission import UNREAD_ORDER
from etdev.schema.fault import Fault, FaultyOps
from etdev.schema.quirk import Nodes, Quirk, Rejection, Row, SourceDifference
from etdev.schema.stages import (
    DECOMPOSE,
    EMIT,
    EXPORT,
    FINISH,
    FUNCTIONALISE,
    HAND_BACK,
    LINK,
    PLAN,
    PLAN_MEMORY,
    PREPARE,
    TO_EDGE,
    VALIDATE,
    OwnProgram,
    Stage,
)

__all__ = [
    "DECOMPOSE",
    "EMIT",
    "EXPORT",
    "FINISH",
    "FUNCTIONALISE",
    "HAND_BACK",
    "LINK",
    "PLAN",
    "PLAN_MEMORY",
    "PREPARE",
    "QUIRKS",
    "TO_EDGE",
    "UNREAD_ORDER",
    "VALIDATE",
    "Fault",
    "FaultyOps",
    "Nodes",
    "OwnProgram",
    "Quirk",
    "Rejection",
    "Row",
    "SourceDifference",
    "Stage",
]
# Stage by stage, each in this order.
QUIRKS: tuple[Row, ...] = (
    *export.QUIRKS,
    *sharing.QUIRKS,
    *repeatability.QUIRKS,
    # First, since torch can't trace some of what they refuse.
    *assertions.QUIRKS,
    *interface.QUIRKS,
    *control_flow.QUIRKS,
    *memory_format.QUIRKS,
    *sizes.QUIRKS,
    *mutation.QUIRKS,
    *state.QUIRKS,
    *buffers.QUIRKS,
    *promotion.QUIRKS,
    # Between tensors of one dtype, fewer numbers are rounded.
    *scalars.QUIRKS,
    *emission.QUIRKS,
)
