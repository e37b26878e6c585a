"""Builds of C++ programs against ExecuTorch's wheel, kept in the user's cache folder."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from attrs import frozen
from blake3 import blake3
from platformdirs import user_cache_path

from etdev.errors import RunError
from etdev_cpp.wheel import Wheel

# Names a compiler, as make and CMake read it.
VARIABLE = "CXX"
COMPILERS = ("c++", "g++", "clang++")
CURE = f"install g++ or clang++, or name a compiler with {VARIABLE}; --runner python needs none"
_LIMIT_S = 600
_GLIBC = re.compile(rb"GLIBC_(\d+(?:\.\d+)+)\0")


@frozen
class Compiler:
    """A C++ compiler: the words that start it, and what it says of its version."""

    words: tuple[str, ...]
    version: str

    @classmethod
    def here(cls) -> Compiler:
        """Return the compiler that CXX names, else the first one of this machine.

        Raises:
            RunError: No compiler is installed, or it doesn't work.
        """
        words = find()
        if not words:
            windows = sys.platform == "win32"
            what = "Windows is not supported" if windows else "no C++ compiler is installed"
            raise RunError("cpp", what, "use --runner python" if windows else CURE)
        return cls.of(words)

    @classmethod
    def of(cls, words: Sequence[str]) -> Compiler:
        """Return the compiler that some words start, or raise a RunError if it doesn't work."""
        try:
            done = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunError("cpp", f"{shlex.join(words)} doesn't work: {error}", CURE) from error
        if done.returncode:
            what = f"{shlex.join(words)} --version ended with exit code {done.returncode}"
            raise RunError("cpp", what, CURE)
        return cls(tuple(words), done.stdout)


def find() -> list[str]:
    """Return the words of the command that starts a compiler; empty without one, and on Windows."""
    if sys.platform == "win32":
        # The runner reads and writes its pipes as POSIX has them.
        return []
    if named := shlex.split(os.environ.get(VARIABLE, "")):
        return named if shutil.which(named[0]) else []
    return next(([name] for name in COMPILERS if shutil.which(name)), [])


def sources() -> dict[str, str]:
    """Return the runner's sources by file name."""
    folder = files(__package__) / "sources"
    found = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    return dict(sorted(found.items()))


def runner(
    flags: Sequence[str] = ("-O2",), wheel: Wheel | None = None, compiler: Compiler | None = None
) -> Path:
    """Return the runner's program, which is built if this machine has none of its key.

    Without a wheel and a compiler it is built for this machine.

    The key has the sources, the compiler's version, the flags, and the version and the place of
    ExecuTorch's wheel. Builds at the same time don't disturb each other, and none is seen
    incomplete.

    Raises:
        RunError: No compiler is found, or it fails.
    """
    wheel, compiler, texts = wheel or Wheel.here(), compiler or Compiler.here(), sources()
    key = repr((texts, compiler, list(flags), wheel.version, str(wheel.folder)))
    folder = user_cache_path("etdev", appauthor=False) / "runners"
    program = folder / f"cpp-{blake3(key.encode()).hexdigest()[:24]}"
    if program.exists():
        return program
    with kept(folder, "the C++ runner") as place:
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        compile_program(compiler, [place / "runner.cpp"], place / "runner", wheel, flags)
        os.replace(place / "runner", program)
    return program


@contextmanager
def kept(folder: Path, what: str) -> Iterator[Path]:
    """Yield a new folder within a folder of the user's cache, and remove it at the end.

    Raises:
        RunError: What is to be kept there can't be written, such as on a full disk.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as place:
            yield Path(place)
    except OSError as error:
        cure = "make that folder writable, and room on its disk"
        raise RunError(str(folder), f"{what} can't be written: {error}", cure) from error


def glibc(files: Iterable[Path]) -> str:
    """Return the oldest glibc that has all that some binaries ask for; empty without glibc."""
    found = (name for file in files for name in _GLIBC.findall(file.read_bytes()))
    return max((name.decode() for name in found), key=_numbers, default="")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def compile_program(
    compiler: Compiler, mains: Sequence[Path], program: Path, wheel: Wheel, flags: Sequence[str]
) -> None:
    """Compile and link a program with all libraries of a wheel.

    Raises:
        RunError: The compiler fails.
    """
    words = [
        *(*compiler.words, *flags, *wheel.compile_flags(), *map(str, mains)),
        *("-o", str(program), *wheel.link_flags()),
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise RunError("cpp", f"{compiler.words[0]} took longer than {_LIMIT_S} s", CURE) from None
    if done.returncode:
        refuse_full(done.stderr)
        first = next(_errors(done.stderr), f"exit code {done.returncode}")
        what = f"{shlex.join(compiler.words)} can't build the C++ runner: {first}"
        raise RunError("cpp", what, CURE)


def refuse_full(said: str) -> None:
    """Raise the OSError of a full disk if a command that failed says so."""
    if os.strerror(errno.ENOSPC) in said:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _errors(text: str) -> Iterator[str]:
    yield from (line.strip() for line in text.splitlines() if "error" in line)
