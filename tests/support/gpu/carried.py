"""What the lane `torch` takes to a bare machine, as wheels beside the torch that it has."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from support.gpu.lanes import ROOT

# Installed without their dependencies, which ask for another torch and for much that the lane
# doesn't import; torch brings the rest.
CARRIED = (
    *("executorch", "attrs", "blake3", "cattrs", "click", "flatbuffers", "loky", "cloudpickle"),
    *("packaging", "platformdirs", "pluggy", "pytest", "iniconfig", "pygments", "rich"),
    *("markdown-it-py", "mdurl", "ruamel.yaml", "ruamel.yaml.clib", "pyyaml", "tabulate"),
)
OWN = (".", "plugins/etdev-cuda")


def carry(folder: Path) -> int:
    """Put the wheels into a folder; return pip's exit code."""
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "wheel", "--no-deps"]
    wheels = [f"{name}=={version(name)}" for name in CARRIED]
    own = [str(ROOT / path) for path in OWN]
    return subprocess.run([*pip, "--wheel-dir", str(folder), *wheels, *own], check=False).returncode
