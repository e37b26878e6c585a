"""Environments of their own for tests that install distributions, without a second torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

# The build backend is here, and the tests ask no network for it.
NO_NETWORK = ("--no-build-isolation", "--no-deps")
WHERE = """
import importlib.util, json, sys
names = ("etdev", *(f"etdev_{name}" for name in sys.argv[1:]))
print(json.dumps({name: importlib.util.find_spec(name).origin for name in names}))
"""


def run(command: Sequence[object], folder: Path, **environ: str) -> str:
    """What a command prints, run as if neither this repository nor an outer make were there."""
    unset = ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    inherited = {key: value for key, value in os.environ.items() if key not in unset}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**inherited, **environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@frozen
class Environment:
    """A fresh environment that sees torch and the rest, and nothing of etdev.

    Args:
        folder: Where it is.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path, beneath: Environment | None = None) -> Environment:
        """An environment in an empty folder, which sees what another one has."""
        venv.create(folder, with_pip=False)
        (packages,) = folder.glob("lib/python*/site-packages")
        shared = [*beneath.packages] if beneath else [_shared(folder / "shared")]
        (packages / "shared.pth").write_text("\n".join(map(str, shared)))
        if beneath:
            script = (beneath.folder / "bin" / "etdev").read_text().partition("\n")[2]
            (folder / "bin" / "etdev").write_text(f"#!{folder}/bin/python\n{script}")
            (folder / "bin" / "etdev").chmod(0o755)
        # It installs into this environment and downloads nothing.
        pip = f'"{sys.executable}" -m pip --python "{folder}/bin/python"'
        script = folder / "bin" / "pip"
        script.write_text(f'#!/bin/sh\nexec {pip} "$@" --quiet {" ".join(NO_NETWORK)}\n')
        script.chmod(0o755)
        return cls(folder)

    @property
    def packages(self) -> list[Path]:
        """Where its packages are, its own and those that it sees."""
        (own,) = self.folder.glob("lib/python*/site-packages")
        return [own, *map(Path, (own / "shared.pth").read_text().splitlines())]

    def run(self, command: Sequence[object], folder: Path, **environ: str) -> str:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return run(command, folder, PATH=path, **environ)

    def origins(self, plugins: Sequence[str], folder: Path) -> dict[str, Path]:
        """Where the packages are imported from."""
        told = self.run(["python", "-c", WHERE, *plugins], folder)
        return {name: Path(path) for name, path in json.loads(told).items()}


def _shared(folder: Path) -> Path:
    """All that is installed where the tests run, but for etdev and what editable installs leave."""
    folder.mkdir()
    for path in sys.path:
        if Path(path).name not in ("site-packages", "dist-packages"):
            continue
        for entry in sorted(Path(path).iterdir()):
            own = entry.name.startswith(("etdev", "_editable", "__editable__"))
            if not own and entry.suffix != ".pth" and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    return folder
