"""The place where the C++ runner runs: here, in an emulator, on an ssh host or an adb device."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from attrs import frozen
from blake3 import blake3
from packaging.version import Version
from platformdirs import user_cache_path

from etdev.errors import RunError, close_to
from etdev.runtime.ending import ending
from etdev.schema.target import ADB, LOCAL, Target
from etdev_cpp import build
from etdev_cpp.ndk import Android
from etdev_cpp.wheel import Wheel, lowering

_LIMIT_S = 600
_THREADS = "OMP_NUM_THREADS"
# The oldest glibc that a wheel of ExecuTorch asks for.
_PLATFORM = "manylinux_2_28"
_SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
)
# What ssh and adb say when a connection is lost, or how their process ends then.
_LOST = (
    *("closed by remote host", "Broken pipe", "Connection reset", "not responding"),
    *("Connection closed", "error: closed", "died of"),
)
# A shell adds this to the number of the signal that a program died of.
_SIGNALS = 128
# Prints the machine and its processors, by their numbers of implementer and part on ARM.
_PROCESSOR = (
    'echo "$(uname -m), $(nproc) cores"; '
    "grep -E '^(model name|Model|CPU implementer|CPU part)' /proc/cpuinfo | sort -u"
)
# The folder of runners on a host and on a device, for its shell.
_BASE = '"${XDG_CACHE_HOME:-$HOME/.cache}"/etdev/runners'
_ADB_BASE = '"${TMPDIR:-/data/local/tmp}"/etdev/runners'
# What tar says on a full disk; the second, where it wrote a part of a file.
_FULL = ("No space left on device", "Wrote only")
_INSTALLED = {"ssh": "apt install openssh-client", "adb": "apt install adb"}


@frozen
class Place:
    """A target, with the model of processor if it is emulated."""

    target: Target
    model: str = ""

    @classmethod
    def of(cls, target: Target) -> list[Place]:
        """Return the places of a target, one for each model."""
        return [cls(target, model) for model in target.models or ("",)]

    @property
    def name(self) -> str:
        """Its name in a summary: `cortex-a76 (qemu)`, the host, or how it is reached."""
        return f"{self.model} (qemu)" if self.model else self.target.host or self.target.on

    @property
    def here(self) -> bool:
        """True if its programs are processes of this machine."""
        return bool(self.model) or self.target.kind == LOCAL

    @property
    def shell(self) -> tuple[str, ...]:
        """The words that start a command of a shell there."""
        if self.here:
            return ("sh", "-c")
        if self.target.kind != ADB:
            return (*_SSH, self.target.host)
        device = ("-s", self.target.host) if self.target.host else ()
        # A terminal would change bytes on their way.
        return ("adb", *device, "shell", "-T")

    @property
    def cure(self) -> str:
        """The advice if nothing runs there."""
        if self.model:
            return f"see that {self._root} has the C library of its programs"
        if self.here:
            return "see that its triple is that of this machine"
        words = self.shell if self.target.kind == ADB else ("ssh", self.target.host)
        return f"try {shlex.join(words)} true"

    def facts(self) -> dict[str, str]:
        """Return its name, triple, wheel, glibc and processor, which a lock records.

        Raises:
            RunError: The host can't be reached, or the runner can't be built.
        """
        wheel = self.wheel()
        files = [build.runner(wheel=wheel, compiler=self.compiler()), *wheel.paths()]
        known = {"name": self.name, "triple": self.target.triple, "wheel": wheel.digest()}
        if glibc := build.glibc(files):
            known["glibc"] = glibc
        if not self.model:
            told = self.ask(_PROCESSOR).splitlines()
            return {**known, "processor": ", ".join(" ".join(line.split()) for line in told)}
        return {**known, "processor": self.model}

    def wheel(self, headers: bool = True) -> Wheel:
        """Return ExecuTorch for the target: the folder that it names, else pip's wheel for it.

        Without `headers` libraries are enough, as for their sizes.

        Raises:
            RunError: pip can't download it, or the folder lacks headers or libraries.
        """
        named = self.target.executorch
        folder = Path(named).expanduser() if named else downloaded(self._gnu)
        wheel = Wheel(folder)
        if not wheel.libraries() or (headers and not all(p.is_dir() for p in wheel.includes)):
            what = f"{folder} has no include/ and lib/ of ExecuTorch"
            raise RunError("target", what, "give the folder of its package as executorch")
        if Version(wheel.version) < Version(lowering()):
            what = f"{folder} is ExecuTorch {wheel.version}, older than {lowering()}, which lowers"
            raise RunError("target", what, "name a folder of that version as executorch, or none")
        return wheel

    def compiler(self) -> build.Compiler:
        """Return a compiler for the target.

        Raises:
            RunError: None is installed.
        """
        triple, gnu = self.target.triple, self._gnu
        sysroot = [f"--sysroot={self._root}"] if self.target.sysroot else []
        known = [[f"{gnu}-g++"], ["clang++", f"--target={gnu}"], ["zig", "c++", "-target", gnu]]
        cure = f"apt install g++-{gnu.replace('_', '-')}"
        if android := Android.of(triple):
            known, cure = [[android.compiler, "-static-libstdc++"]], android.cure
        for words in known:
            if shutil.which(words[0]):
                return build.Compiler.of([*words, *sysroot])
        names = " or ".join(words[0] for words in known)
        raise RunError("target", f"a C++ compiler for it is missing: {names}", cure)

    def command(self, program: Path) -> tuple[str, ...]:
        """Return the words that start a program there.

        Raises:
            RunError: The emulator is not installed.
        """
        if self.target.kind == LOCAL:
            return (str(program),)
        if not self.model:
            threads = os.environ.get(_THREADS, "")
            setting = f"{_THREADS}={shlex.quote(threads)} " if threads else ""
            return (*self.shell, f"{setting}{self._there(program)}/runner; exit $?")
        if Android.of(self.target.triple):
            what = "the emulator runs programs of Linux, and not of Android"
            raise RunError("target", what, 'give on = "adb"')
        emulator = f"qemu-{self.target.processor}"
        if not shutil.which(emulator):
            raise RunError("target", f"{emulator} is not installed", "apt install qemu-user")
        listed = subprocess.run([emulator, "-cpu", "help"], capture_output=True, text=True).stdout
        name, models = self.model.partition(",")[0], listed.split()
        if name not in models:
            cure = close_to(name, models) or f"name one that {emulator} -cpu help lists"
            raise RunError("target", f"{emulator} has no processor {name}", cure)
        return (emulator, "-cpu", self.model, "-L", self._root, str(program))

    def send(self, program: Path, wheel: Wheel) -> None:
        """Copy a program with ExecuTorch's libraries there, unless it has them.

        Raises:
            RunError: The host can't be reached, or has no room.
        """
        folder = self._there(program)
        if self.here or self.ask(f"test -e {folder}/runner || echo new").strip() != "new":
            return
        files = [program, *wheel.paths()]
        words = [word for file in files for word in ("-C", str(file.parent), file.name)]
        with tempfile.TemporaryFile() as packed:
            subprocess.run(["tar", "-cz", *words], stdout=packed, check=True)
            packed.seek(0)
            # The runner gets its name when all else is there.
            named = f"mv {folder}/{program.name} {folder}/runner"
            make = f"mkdir -p {folder} && tar -xz -C {folder} && {named}"
            self.ask(f"{make} || {{ rm -rf {folder}; exit 1; }}", packed)

    def put(self, files: Mapping[str, Path]) -> str:
        """Copy files to a new folder on the host, under other names, and return its path.

        Raises:
            RunError: As `ask`.
        """
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for name, file in files.items():
                    archive.add(file, name)
            packed.seek(0)
            make = 'tar -x -C "$folder" && echo "$folder" || { rm -rf "$folder"; exit 1; }'
            return self.ask(f"folder=$(mktemp -d) || exit 1; {make}", packed).strip()

    def told(self, failure: str) -> str:
        """Return how a program failed on the host.

        Raises:
            RunError: The connection failed, and not the program.
        """
        if any(sign in failure for sign in _LOST):
            raise RunError(self.name, f"the connection was lost: {failure}", self.cure)
        self.ask("true")
        code = re.search(r"ended with exit code (\d+)", failure)
        if not code or int(code[1]) <= _SIGNALS:
            return failure
        return failure.replace(code[0], ending(_SIGNALS - int(code[1])))

    def remove(self, folders: Sequence[str]) -> None:
        """Remove folders from the host, if it still can be reached."""
        if folders:
            with suppress(RunError):
                self.ask(f"rm -rf {shlex.join(folders)}")

    def ask(self, command: str, given: IO[bytes] | int = subprocess.DEVNULL) -> str:
        """Return what a command prints on the host.

        Raises:
            RunError: It can't be reached, or the command fails.
        """
        words = self.shell
        try:
            done = subprocess.run(
                [*words, command], stdin=given, capture_output=True, timeout=_LIMIT_S
            )
        except OSError as error:
            cure = _INSTALLED[words[0]]
            raise RunError(self.name, f"can't be reached: {error}", cure) from error
        except subprocess.TimeoutExpired as error:
            raise RunError(self.name, f"{words[0]} took over {_LIMIT_S} s", self.cure) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            for line in said:
                if any(sign in line for sign in _FULL):
                    raise RunError(self.name, f"its disk is full: {line}", "make room there")
            what = f"{words[0]} failed: {(said or [f'exit code {done.returncode}'])[-1]}"
            raise RunError(self.name, what, self.cure)
        return done.stdout.decode(errors="replace")

    @property
    def _root(self) -> str:
        """The folder of the C library of emulated programs."""
        return str(Path(self.target.sysroot or f"/usr/{self._gnu}").expanduser())

    @property
    def _gnu(self) -> str:
        """The triple as GNU's tools are named, without a vendor: `aarch64-linux-gnu`."""
        _, *rest = self.target.triple.split("-")
        return "-".join([self.target.processor, *rest[-2:]])

    def _there(self, program: Path) -> str:
        """Return the folder of a program there, by its digest."""
        base = _ADB_BASE if self.target.kind == ADB else _BASE
        return f"{base}/{blake3(program.read_bytes()).hexdigest()[:24]}"


def downloaded(triple: str) -> Path:
    """Return the package in ExecuTorch's wheel for a processor, of the version that lowers.

    pip downloads it once; it stays in the user's cache folder.

    Raises:
        RunError: pip finds none, or the system is another one than Linux with glibc.
    """
    own, processor = lowering(), triple.partition("-")[0]
    cure = "name the folder of a build as executorch"
    if not triple.endswith("-linux-gnu"):
        raise RunError("target", f"pip has no wheel of executorch for {triple}", cure)
    folder = user_cache_path("etdev", appauthor=False) / "wheels" / f"executorch-{own}-{processor}"
    if (folder / "executorch").is_dir():
        return folder / "executorch"
    with build.kept(folder.parent, "ExecuTorch's wheel") as place:
        words = [*_pip(place), "--platform", f"{_PLATFORM}_{processor}", f"executorch=={own}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S)
        wheels = list(place.glob("*.whl"))
        build.refuse_full(done.stderr)
        if done.returncode or not wheels:
            said = (done.stderr.strip().splitlines() or ["it found none"])[-1]
            what = f"pip has no wheel of executorch {own} for {processor}: {said}"
            raise RunError("target", what, cure)
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(place / "unpacked")
        if not folder.exists():
            (place / "unpacked").rename(folder)
    return folder / "executorch"


def _pip(place: Path) -> Sequence[str]:
    options = ("--no-deps", "--only-binary", ":all:", "--quiet", "--dest", str(place))
    python = ".".join(map(str, sys.version_info[:2]))
    return (sys.executable, "-m", "pip", "download", *options, "--python-version", python)
