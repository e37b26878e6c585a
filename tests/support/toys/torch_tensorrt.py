"""Where `make` installs the versions of torch-tensorrt; one environment can't hold both."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed
from pathlib import Path

VERSIONS = ("2.13.0", "2.14.0")
# The one made for the torch that is here; the plugin's probe refuses the others.
FITTING = next((v for v in VERSIONS if installed("torch").startswith(v[:5])), VERSIONS[-1])
VERSION = os.environ.get("TORCH_TENSORRT", FITTING)


def site(version: str = VERSION) -> Path:
    """The folder of a version."""
    return Path(sys.prefix) / f"torch-tensorrt-{version}"


def why_missing(version: str = VERSION) -> str | None:
    """Why tests that need torch-tensorrt's Python have to be skipped here, or None."""
    folder = site(version)
    return None if folder.is_dir() else f"torch-tensorrt {version} is not in {folder}; make test"
