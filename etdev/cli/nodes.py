"""Node data for Model Explorer, which `etdev plan` and `etdev run` write with --node-data."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from etdev.errors import EtdevError
from etdev.files import check_writable, publish, unseen, write_text
from etdev.schema.node_data import node_data
from etdev.schema.plan import Plan
from etdev.schema.profile import Profile

HELP = "Write node data for Model Explorer there: owner.json, device.json, reason.json"


def check(folder: Path) -> None:
    """Check, before the long work begins, that the folder can be written.

    Raises:
        ArtifactError: It can't be written.
    """
    check_writable(folder / "owner.json" if folder.is_dir() else folder)


def write(plan: Plan, folder: Path, profile: Profile | None = None) -> None:
    """Write each set of a plan's node data to a file, all of them or none.

    Raises:
        EtdevError: The folder or a file can't be written.
    """
    is_new = not folder.is_dir()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        what = f"can't be written ({error.strerror})"
        raise EtdevError(str(folder), what, "choose another folder") from error
    sets = node_data(plan, profile)
    files = [folder / f"{name}.json" for name in sets]
    try:
        with unseen(files[0]) as hidden:
            for file, data in zip(files, sets.values(), strict=True):
                write_text(hidden / file.name, json.dumps(data))
            publish([hidden / file.name for file in files], files[0])
    except EtdevError:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
