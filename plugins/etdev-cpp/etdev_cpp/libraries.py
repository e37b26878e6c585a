"""Shared libraries of the installed ExecuTorch that a C++ program needs for a `.pte`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from attrs import field, frozen

from etdev.errors import BudgetError
from etdev.pte.artifact import MethodArtifact

# Loads and executes programs; every program needs it.
RUNTIME = "executorch"
# The same in a build for Android, whose AAR names it like the others.
_JNI = "executorch_jni"
# The end of the names of vendors' libraries, such as that of MediaTek.
_BACKEND = "_backend"
_SUFFIXES = (".so", ".dylib", ".dll")


@frozen(order=True)
class Library:
    """A shared library, with its size first so that smaller ones come first."""

    size_bytes: int
    path: Path

    @classmethod
    def at(cls, path: Path) -> Library:
        """Return the library in a file."""
        return cls(path.stat().st_size, path)

    @property
    def name(self) -> str:
        """Its name for the linker, as in `-lexecutorch`."""
        return self.path.stem.removeprefix("lib")

    def holds(self, name: str) -> bool:
        """Return True if it holds a text that ends with a name, and no longer name.

        A library registers its backends and kernels by such texts, and names the libraries that it
        needs by them.
        """
        data, wanted, place = _contents(self.path), name.encode() + b"\0", -1
        while (place := data.find(wanted, place + 1)) >= 0:
            # Bytes, not a str: code before the name may end with 0xff, in which str sees a letter.
            before = data[place - 1 : place]
            if not (before.isalnum() or before in b"_:."):
                return True
        return False


@frozen
class Linked:
    """The libraries for the backends and kernels of a program.

    Args:
        libraries: The backends and kernels that each is needed for; none for the runtime, and for a
            library that another one needs.
        missing: The backends and kernels that no library has.
        known: The libraries that they were looked for in.
    """

    libraries: Mapping[Library, tuple[str, ...]]
    missing: tuple[str, ...]
    known: tuple[Library, ...] = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """The size of all libraries."""
        return sum(library.size_bytes for library in self.libraries)

    def saved_without(self, library: Library) -> int:
        """Return the bytes that a program saves which needs nothing of a library."""
        names = (name for own in self.libraries.values() for name in own)
        return (
            self.size_bytes - linked(set(names) - {*self.libraries[library]}, self.known).size_bytes
        )


@cache
def installed() -> tuple[Library, ...]:
    """Return the libraries for C++ of the installed ExecuTorch; none before ExecuTorch 1.5."""
    spec = find_spec("executorch")
    folders = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    return tuple(library for folder in folders for library in libraries_in(folder))


def libraries_in(package: Path) -> tuple[Library, ...]:
    """Return the libraries for C++ in the folder of ExecuTorch's package."""
    files = [file for file in (package / "lib").glob("*") if file.suffix in _SUFFIXES]
    known = (file for file in files if RUNTIME in file.name or file.stem.endswith(_BACKEND))
    return tuple(sorted(map(Library.at, known)))


def linked(names: Iterable[str], known: Sequence[Library] | None = None) -> Linked:
    """Return the libraries for some backends and kernels, and all that these libraries need.

    They are among the known ones, or among the installed ones if these are None.
    """
    known = tuple(installed() if known is None else known)
    runtime = [library for library in known if library.name in (RUNTIME, _JNI)]
    found: dict[Library, list[str]] = {library: [] for library in runtime}
    missing = []
    for name in sorted(names):
        holders = [library for library in known if library.holds(name)]
        if holders:
            chosen = next((library for library in holders if library in found), holders[0])
            found.setdefault(chosen, []).append(name)
        else:
            missing.append(name)
    for library in _needed(found, known):
        found.setdefault(library, [])
    return Linked({library: tuple(own) for library, own in found.items()}, tuple(missing), known)


def link_flags(libraries: Collection[Library]) -> tuple[str, ...]:
    """Return the linker's options for libraries, which register themselves when they are loaded."""
    if not libraries:
        return ()
    first = next(iter(libraries)).path
    folder = first.parent
    # The linker of macOS keeps all libraries.
    keep = () if first.suffix == ".dylib" else ("-Wl,--no-as-needed",)
    names = (f"-l{library.name}" for library in libraries)
    return (f"-L{folder}", *keep, *names, f"-Wl,-rpath,{folder}")


def names_in(methods: Iterable[MethodArtifact]) -> set[str]:
    """Return the kernels and backends of methods."""
    return {name for m in methods for name in (*m.operators, *(d.backend_id for d in m.delegates))}


def runtime_bytes(methods: Iterable[MethodArtifact], most: int | None = None) -> int:
    """Return the bytes of the libraries that a C++ program of some methods needs.

    Args:
        methods: All methods of a `.pte`.
        most: The `runtime_bytes` of a budget; None counts what the installed libraries have.

    Raises:
        BudgetError: They have more bytes, or no library has one of the kernels or backends.
    """
    known = linked(names_in(methods))
    if most is not None and (known.missing or not known.libraries):
        lacking = ", ".join(known.missing) or RUNTIME
        what = f"runtime_bytes can't be checked: no library of this ExecuTorch has {lacking}"
        raise BudgetError("budget", what, "leave runtime_bytes out")
    if most is not None and known.size_bytes > most:
        texts = (
            f"{library.path.name} {library.size_bytes}" + (f" for {', '.join(own)}" if own else "")
            for library, own in known.libraries.items()
        )
        what = f"runtime_bytes is {most}, and its libraries have {known.size_bytes}"
        cure = "delegate these, which etdev explain helps with, or raise runtime_bytes"
        raise BudgetError("budget", f"{what}: {'; '.join(texts)}", cure)
    return known.size_bytes


def _needed(libraries: Collection[Library], known: Sequence[Library]) -> list[Library]:
    """Return libraries with all that they need of the known ones, directly and indirectly."""
    found = list(libraries)
    for library in found:
        found += [other for other in known if other not in found and library.holds(other.path.name)]
    return found


@cache
def _contents(path: Path) -> bytes:
    return path.read_bytes()
