"""A store of measurements, which later tunings reuse.

An entry is a JSON file named by the digest of all that its times depend on: the .pte, the calls,
the policy, the target's fingerprint, and the round with everything else that ran in it. No index
can go stale. A file that can't be read counts as not measured.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from blake3 import blake3

from etdev.app import Document, files
from etdev.errors import EtdevError, TuneError
from etdev_tune.exchange import Failure, Result

ENTRY = Document("etdev.measurement", 5)


@frozen
class Entry:
    """A measurement, or why there is none, with its key as JSON reads it back."""

    key: Mapping[str, Any]
    measurement: Result | None = None
    failure: Failure | None = None


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
                files.try_writing(self.folder)

    def load(self, key: Mapping[str, Any]) -> Result | Failure | None:
        """Return the measurement of a key; None if it is missing or its file is torn."""
        with contextlib.suppress(OSError, ValueError, EtdevError):
            text = self._path(key).read_text("utf-8") if self.folder else ""
            entry = ENTRY.read(text, Entry, "measurement")
            if entry.key == _plain(key):
                return entry.measurement or entry.failure
        return None

    def save(self, key: Mapping[str, Any], value: Result | Failure) -> None:
        """Write a measurement without its outputs, or raise a TuneError."""
        if self.folder is None:
            return
        entry = Entry(_plain(key))
        if isinstance(value, Failure):
            entry = evolve(entry, failure=value)
        else:
            entry = evolve(entry, measurement=evolve(value, outputs=()))
        path = self._path(key)
        with self._written():
            path.parent.mkdir(parents=True, exist_ok=True)
            # A rename may reach the disk before what it names.
            with files.replacing(path, durable=True) as file:
                file.write(json.dumps(ENTRY.of(entry), indent=1, sort_keys=True).encode())

    def _path(self, key: Mapping[str, Any]) -> Path:
        assert self.folder
        text = json.dumps(ENTRY.stamped(_plain(key)), sort_keys=True)
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
