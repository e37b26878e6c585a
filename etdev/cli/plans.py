"""Plans that commands read from JSON."""

from __future__ import annotations

from pathlib import Path

from etdev.errors import EtdevError
from etdev.schema.plan import Plan


def read_plan(file: Path) -> Plan:
    """Read the JSON of a plan.

    Raises:
        EtdevError: It can't be read, or is not a plan.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise EtdevError(str(file), f"can't be read ({error.strerror})", "give a file") from error
    except UnicodeDecodeError as error:
        cure = "write it with etdev plan --json"
        raise EtdevError(str(file), "is not a plan (it is not text)", cure) from error
    return Plan.from_json(text, str(file))
