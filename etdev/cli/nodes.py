"""Node data for Model Explorer: `etdev plan --node-data` and `etdev run --node-data`."""

from __future__ import annotations

import json
from pathlib import Path

from etdev.errors import EtdevError
from etdev.files import write_text
from etdev.schema.node_data import node_data
from etdev.schema.plan import Plan
from etdev.schema.profile import Profile

HELP = "Write owner.json, device.json and reason.json there, as node data for Model Explorer"


def write(plan: Plan, folder: Path, profile: Profile | None = None) -> None:
    """Write each set of a plan's node data to a file of its own.

    Raises:
        EtdevError: The folder can't be written.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        what = f"can't be written ({error.strerror})"
        raise EtdevError(str(folder), what, "choose another folder") from error
    for name, data in node_data(plan, profile).items():
        write_text(folder / f"{name}.json", json.dumps(data))
