"""A store of measurements, which later tunings reuse.

An entry is a JSON file named by the digest of all that its times depend on: the .pte, the calls,
the policy, the target's fingerprint, and the round with everything else that ran in it. There is no
index to go stale. A file that can't be read counts as not measured.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, filters, frozen
from blake3 import blake3

from etdev.errors import TuneError
from etdev.files import replacing, try_writing
from etdev.schema.structuring import CONVERTER, REFUSALS
from etdev_tune.exchange import Failure, Result

VERSION = 4
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, RecursionError, *REFUSALS)


def default_folder() -> Path:
    """Return the folder that ETDEV_MEASUREMENTS names, else one in the user's cache directory."""
    from platformdirs import user_cache_path

    if named := os.environ.get("ETDEV_MEASUREMENTS"):
        return Path(named).expanduser()
    return user_cache_path("etdev", appauthor=False) / "measurements"


@frozen
class Store:
    """Measurements in a folder; None keeps nothing."""

    folder: Path | None

    def check(self) -> None:
        """Make the folder, or raise a TuneError if no file can be written there."""
        if self.folder:
            with self._written():
                self.folder.mkdir(parents=True, exist_ok=True)
                try_writing(self.folder)

    def load(self, key: Mapping[str, Any]) -> Result | Failure | None:
        """Return the measurement of a key; None if it is missing or its file is torn."""
        with contextlib.suppress(*_UNREADABLE):
            entry = json.loads(self._path(key).read_text("utf-8")) if self.folder else {}
            if (entry["version"], entry["key"]) == (VERSION, _plain(key)):
                if "failure" in entry:
                    return CONVERTER.structure(entry["failure"], Failure)
                return CONVERTER.structure(entry["measurement"], Result)
        return None

    def save(self, key: Mapping[str, Any], value: Result | Failure) -> None:
        """Write a measurement without its outputs, or raise a TuneError."""
        if self.folder is None:
            return
        kind = "failure" if isinstance(value, Failure) else "measurement"
        content = asdict(value, filter=filters.exclude("outputs"))
        entry = {"version": VERSION, "key": _plain(key), kind: content}
        path = self._path(key)
        with self._written():
            path.parent.mkdir(parents=True, exist_ok=True)
            # A rename may reach the disk before what it names.
            with replacing(path, durable=True) as file:
                file.write(json.dumps(entry, indent=1, sort_keys=True).encode())

    def _path(self, key: Mapping[str, Any]) -> Path:
        assert self.folder
        text = json.dumps({"version": VERSION, **_plain(key)}, sort_keys=True)
        digest = blake3(text.encode()).hexdigest()
        return self.folder / digest[:2] / f"{digest}.json"

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"the folder for measurements can't be written ({error.strerror})"
            raise TuneError(str(self.folder), what, "name another with --store") from error


def _plain(key: Mapping[str, Any]) -> dict[str, Any]:
    """Return a key as JSON reads it back."""
    plain: dict[str, Any] = json.loads(json.dumps(key, sort_keys=True))
    return plain
