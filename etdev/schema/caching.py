"""Settings of the compile cache: its folder or URL, and its size."""

from __future__ import annotations

import os
import re
from pathlib import Path

from attrs import field, frozen
from attrs.validators import gt, instance_of, lt

from etdev.errors import CacheError
from etdev.schema.structuring import structured

VARIABLE = "ETDEV_CACHE"
OFF = "off"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)?", re.IGNORECASE | re.ASCII)
_POWERS = " KMGT"


def size_of(value: object) -> int:
    """Read a number of bytes: `2000000`, `"10 GiB"`."""
    text = str(value) if type(value) in (int, str) else ""
    match = _SIZE.fullmatch(text.strip())
    if not match or float(match[1]) <= 0:
        raise CacheError("cache", f"{value!r} is not a size", 'write "10 GiB"')
    unit = (match[2] or "B").upper()
    power = _POWERS.index(unit[0]) if len(unit) > 1 else 0
    return int(float(match[1]) * (1024 if "I" in unit else 1000) ** power)


@frozen
class CacheSettings:
    """The place and size of the compile cache.

    Args:
        location: A folder, a URL that fsspec knows, or `off`. A URL is a shared cache behind the
            folder in the user's cache directory. If empty, only that folder is used.
        folder: The folder, if `location` is a URL.
        size: Largest size of the folder, such as `10 GiB`; the least recently used entries are
            removed first.
        timeout_s: Time limit of each access to a URL, in seconds.
    """

    location: str = field(default="", validator=instance_of(str))
    folder: str = field(default="", validator=instance_of(str))
    size: int | str = field(default="10 GiB", validator=lambda _, __, size: size_of(size))
    timeout_s: float = field(default=30.0, validator=[instance_of((int, float)), gt(0), lt(86400)])

    @classmethod
    def of(cls, value: object, registry: CacheSettings | None = None) -> CacheSettings:
        """Return settings from a location, False, or settings.

        None takes the location from the environment variable ETDEV_CACHE, else from the registry.
        """
        settings = registry or cls()
        if value is None:
            value = os.environ.get(VARIABLE) or settings.location
        if value is False:
            value = OFF
        if isinstance(value, (str, os.PathLike)):
            return cls(os.fspath(value), settings.folder, settings.size, settings.timeout_s)
        return structured(value, cls, "cache", CacheError)

    @property
    def off(self) -> bool:
        """True if the cache is off."""
        return self.location == OFF

    @property
    def url(self) -> str:
        """The shared cache, such as `s3://bucket/etdev`; empty without one."""
        return self.location if "://" in self.location else ""

    @property
    def path(self) -> Path:
        """The folder on this machine."""
        from platformdirs import user_cache_path

        text = self.folder if self.url else self.location
        default = user_cache_path("etdev", appauthor=False) / "delegates"
        return Path(text).expanduser() if text else default

    @property
    def size_bytes(self) -> int:
        """Largest size of the folder, in bytes."""
        return size_of(self.size)
