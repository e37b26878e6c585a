"""ExecuTorch's wheel as C++ sees it: headers, libraries, and the libraries that a file needs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from attrs import field, frozen

from etdev.errors import RunError
from etdev.pte.artifact import Artifact

RUNTIME = "executorch"
# The wheel's own CMake files define these; without the first its headers can't be compiled.
DEFINITIONS = (
    "C10_USING_CUSTOM_GENERATED_MACROS",
    "ET_EVENT_TRACER_ENABLED",
    "ET_USE_THREADPOOL",
)
STANDARD = "c++17"
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"


@frozen
class Wheel:
    """An installed wheel of ExecuTorch.

    Args:
        folder: The folder of its package.
        version: Its version.
    """

    folder: Path
    version: str = field(factory=lambda: version("executorch"))

    @classmethod
    def here(cls) -> Wheel:
        """Return the wheel that this Python has.

        Raises:
            RunError: It has no headers or no libraries for C++.
        """
        spec = find_spec("executorch")
        places = list(spec.submodule_search_locations or ()) if spec else []
        for place in places:
            wheel = cls(Path(place))
            if wheel.library(RUNTIME) in wheel.libraries and all(
                i.is_dir() for i in wheel.includes
            ):
                return wheel
        what = "this ExecuTorch has no headers and libraries for C++"
        raise RunError("cpp", what, "install a wheel of ExecuTorch 1.5 or later for this system")

    @property
    def includes(self) -> tuple[Path, ...]:
        """The folders of its headers."""
        headers = self.folder / "include"
        return (headers, headers / "executorch" / "runtime" / "core" / "portable_type" / "c10")

    @property
    def place(self) -> Path:
        """The folder of its libraries."""
        return self.folder / "lib"

    @property
    def libraries(self) -> tuple[Path, ...]:
        """Its libraries, the runtime first."""
        found = sorted(self.place.glob(f"lib{RUNTIME}*{_SUFFIX}"))
        return tuple(sorted(found, key=lambda file: file != self.library(RUNTIME)))

    def library(self, name: str) -> Path:
        """Return the path of a library by its name for the linker."""
        return self.place / f"lib{name}{_SUFFIX}"

    def compile_flags(self) -> list[str]:
        """Return the compiler's options for a source that includes its headers."""
        return [
            f"-std={STANDARD}",
            *(f"-D{name}" for name in DEFINITIONS),
            # Headers of a library, in which warnings are not ours.
            *(word for folder in self.includes for word in ("-isystem", str(folder))),
        ]

    def link_flags(self, libraries: Iterable[Path]) -> list[str]:
        """Return the linker's options for libraries, which register themselves when loaded."""
        keep = [] if sys.platform == "darwin" else ["-Wl,--no-as-needed"]
        return [*keep, *map(str, libraries), f"-Wl,-rpath,{self.place}"]

    def needed(self, artifact: Artifact) -> tuple[Path, ...]:
        """Return the libraries that a .pte needs: the runtime, its backends and its kernels.

        A library has a backend or a kernel if it holds its name, with which it registers it.
        Libraries that these need are found by the loader.

        Raises:
            RunError: No library has one of them.
        """
        names = dict[str, str]()
        for method in artifact.methods:
            names.update((d.backend_id, "backend") for d in method.delegates)
            names.update((kernel, "kernel") for kernel in method.operators)
        found = {self.library(RUNTIME): None}
        for name, kind in names.items():
            owners = [file for file in self.libraries if _holds(file, name)]
            if not owners:
                what = f"ExecuTorch's wheel has no library with the {kind} {name}"
                raise RunError(artifact.path, what, "link the library of its vendor yourself")
            found.setdefault(owners[0])
        return tuple(found)


@cache
def _contents(file: Path) -> bytes:
    return file.read_bytes()


def _holds(file: Path, name: str) -> bool:
    return b"\0" + name.encode() + b"\0" in _contents(file)
