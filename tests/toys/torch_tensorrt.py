"""Where `make` installs the versions of torch-tensorrt; one environment can't hold both."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VERSIONS = ("2.13.0", "2.14.0")
VERSION = os.environ.get("TORCH_TENSORRT", VERSIONS[0])


def site(version: str = VERSION) -> Path:
    """The folder of a version."""
    return Path(sys.prefix) / f"torch-tensorrt-{version}"


def why_missing(version: str = VERSION) -> str | None:
    """Why tests that need torch-tensorrt's Python have to be skipped here, or None."""
    folder = site(version)
    return None if folder.is_dir() else f"torch-tensorrt {version} is not in {folder}; make test"
