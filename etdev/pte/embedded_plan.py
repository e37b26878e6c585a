"""Named data that only etdev reads: the plan with all reasons, and the state that is shared."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etdev.errors import ArtifactError, first_line
from etdev.pte.artifact import LEDGER, STATE
from etdev.pte.opening import opened, program_of
from etdev.schema.plan import Plan
from etdev.schema.structuring import CONVERTER, REFUSALS
from etdev.schema.tensors import SharedState

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager

# A plan of half a million nodes has fewer.
_MOST_BYTES = 1 << 28


def embed_state(manager: EdgeProgramManager, state: Sequence[SharedState]) -> None:
    """Add to a program the names of the state that methods share, if they share any."""
    from etdev.upstream.emission import add_named_data

    if state:
        text = json.dumps(CONVERTER.unstructure(list(state)))
        add_named_data(manager, STATE, text.encode())


def state_of(file: Path, data: bytes | memoryview) -> tuple[SharedState, ...]:
    """Return the state that methods share, of named data that `embed_state` added."""
    try:
        return CONVERTER.structure(json.loads(bytes(data) or b"[]"), tuple[SharedState, ...])
    except (ValueError, RecursionError, *REFUSALS) as error:
        what = f"has damaged data about shared state ({first_line(error)})"
        raise ArtifactError(str(file), what, "lower it again") from error


def embed(manager: EdgeProgramManager, plan: Plan) -> None:
    """Add the plan to a program, unless it is too large to be read again."""
    from etdev.upstream.emission import add_named_data

    text = plan.to_json(indent=None).encode()
    if len(text) > _MOST_BYTES:
        what = f"would be {len(text)} bytes, more than {_MOST_BYTES}"
        raise ArtifactError("ledger", what, "write the plan with etdev plan --json instead")
    add_named_data(manager, LEDGER, zlib.compress(text))


def read_ledger(path: Path) -> Plan:
    """Read the plan that a .pte carries.

    Raises:
        ArtifactError: The file is not a .pte, or carries no plan.
        EtdevError: The plan is of another version of etdev.
    """
    if plan := find_ledger(path):
        return plan
    cure = "lower it without --no-ledger, or name the model or its plan instead"
    raise ArtifactError(str(path), "holds no ledger", cure)


def find_ledger(path: Path) -> Plan | None:
    """Read the plan that a .pte carries as `read_ledger` does; None if it carries none."""
    _, data = opened(path, program_of)[1].get(LEDGER, (0, None))
    if data is None:
        return None
    try:
        text = _decompressed(data).decode()
    except (zlib.error, ValueError) as error:
        what = f"has a damaged ledger ({first_line(error)})"
        raise ArtifactError(str(path), what, "lower it again") from error
    return Plan.from_json(text, f"{path}, ledger")


def _decompressed(data: memoryview) -> bytes:
    """Decompress data within bounds, since a small file may hold a thousand times its size."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data, _MOST_BYTES)
    if not unpacker.eof:
        larger = len(text) == _MOST_BYTES
        raise ValueError(f"it has over {_MOST_BYTES} bytes" if larger else "it is cut short")
    return text
