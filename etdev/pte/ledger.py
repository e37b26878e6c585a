"""The ledger in a .pte: its plan with all reasons, as named data that only etdev reads."""

from __future__ import annotations

import zlib
from pathlib import Path

from executorch.exir import EdgeProgramManager

from etdev.errors import ArtifactError, first_line
from etdev.pte.artifact import LEDGER
from etdev.pte.read import opened
from etdev.schema.plan import Plan


def embed(manager: EdgeProgramManager, plan: Plan) -> None:
    """Have a program carry its plan; the runtime never looks at it."""
    # ExecuTorch fills this store from delegates only, and has no public way to add to it.
    text = plan.to_json(indent=None)
    manager._named_data_store.add_named_data(LEDGER, zlib.compress(text.encode()))


def has_ledger(path: Path) -> bool:
    """Whether a .pte carries its plan.

    Raises:
        ArtifactError: It is not a .pte.
    """
    return _data(path) is not None


def read_ledger(path: Path) -> Plan:
    """Read the plan that a .pte carries.

    Raises:
        ArtifactError: It is not a .pte, or carries none.
        EtdevError: What it carries is not a plan of this etdev's version.
    """
    data = _data(path)
    if data is None:
        cure = "lower it with --with-ledger, or name the model or its plan instead"
        raise ArtifactError(str(path), "holds no ledger", cure)
    try:
        text = zlib.decompress(data).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        what = f"has a damaged ledger ({first_line(error)})"
        raise ArtifactError(str(path), what, "lower it again") from error
    return Plan.from_json(text, f"{path}, ledger")


def _data(path: Path) -> bytes | None:
    def data(_: int, parsed: object) -> bytes | None:
        named = getattr(parsed, "named_data", None)
        if named is None or LEDGER not in named.pte_data:
            return None
        return bytes(named.buffers[named.pte_data[LEDGER].buffer_index])

    return opened(path, data)
