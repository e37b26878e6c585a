"""ExecuTorch's wheel as C++ sees it: headers, and the options of a compiler that uses them."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from attrs import frozen
from blake3 import blake3

from etdev.errors import RunError
from etdev_cpp.libraries import RUNTIME, Library, installed, libraries_in, link_flags

# The wheel's own CMake files define these; without the first its headers can't be compiled.
DEFINITIONS = (
    "C10_USING_CUSTOM_GENERATED_MACROS",
    "ET_EVENT_TRACER_ENABLED",
    "ET_USE_THREADPOOL",
)
STANDARD = "c++17"


def lowering() -> str:
    """Return the version of the ExecuTorch that lowers, without its local part."""
    return version("executorch").partition("+")[0]


@frozen
class Wheel:
    """An installed wheel of ExecuTorch.

    Args:
        folder: The folder of its package.
    """

    folder: Path

    @classmethod
    def here(cls) -> Wheel:
        """Return the wheel that this Python has.

        Raises:
            RunError: It has no headers or no libraries for C++.
        """
        for library in installed():
            wheel = cls(library.path.parents[1])
            if library.name == RUNTIME and all(folder.is_dir() for folder in wheel.includes):
                return wheel
        what = "this ExecuTorch has no headers and libraries for C++"
        raise RunError("cpp", what, "install a wheel of ExecuTorch 1.5 or later for this system")

    @property
    def version(self) -> str:
        """Its version; that of this Python's ExecuTorch for a build that doesn't say."""
        with suppress(OSError):
            text = (self.folder / "version.py").read_text(encoding="utf-8")
            if said := re.search(r"__version__ = ['\"](.+?)['\"]", text):
                return said[1].partition("+")[0]
        return lowering()

    @property
    def includes(self) -> tuple[Path, ...]:
        """The folders of its headers."""
        headers = self.folder / "include"
        return (headers, headers / "executorch" / "runtime" / "core" / "portable_type" / "c10")

    def compile_flags(self) -> list[str]:
        """Return the compiler's options for a source that includes its headers."""
        return [
            f"-std={STANDARD}",
            *(f"-D{name}" for name in DEFINITIONS),
            # Headers of a library, in which warnings are not ours.
            *(word for folder in self.includes for word in ("-isystem", str(folder))),
        ]

    def libraries(self) -> tuple[Library, ...]:
        """Return its shared libraries for C++."""
        return libraries_in(self.folder)

    def paths(self) -> list[Path]:
        """Return the paths of its libraries."""
        return [library.path for library in self.libraries()]

    def digest(self) -> str:
        """Return its version, and a digest of its libraries."""
        contents = blake3(b"".join(path.read_bytes() for path in self.paths()))
        return f"executorch {self.version} {contents.hexdigest()[:16]}"

    def link_flags(self) -> list[str]:
        """Return the linker's options for all of its libraries, there or beside the program."""
        flags = link_flags(self.libraries())
        return [*flags, "-Wl,-rpath,$ORIGIN"] if flags else []
