"""C++ projects that run a .pte, rendered from templates and written all or none."""

from __future__ import annotations

import platform
import re
import shlex
import shutil
from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path
from string import Template
from typing import Any

import torch

from etdev.app import ProgramFile, files, size
from etdev.errors import EtdevError, RunError
from etdev.pte.artifact import Artifact
from etdev.schema.target import Target
from etdev_cpp import generation, interface
from etdev_cpp.frames import raw
from etdev_cpp.generation import LENGTH, numbers_of
from etdev_cpp.interface import Method, methods_of
from etdev_cpp.libraries import Library, linked, names_in
from etdev_cpp.ndk import Android
from etdev_cpp.place import Place
from etdev_cpp.wheel import DEFINITIONS, STANDARD, Wheel

_ENDING = ".txt"
# They run, too.
_SCRIPTS = ("build.sh",)
# It is written for another processor only, from one of two templates.
_TOOLCHAIN = "toolchain.cmake"
_TOOLCHAINS = {False: "toolchain.cmake.txt", True: "android.cmake.txt"}
_COPY = """scp -r build {host}:{name}
ssh {host} 'cd {name} && ./{name} calls.txt'"""
_GLIBC = "a glibc as new as `build.sh` says at its end"
_PUSH = """{adb} push build /data/local/tmp/{name}
{adb} shell 'cd /data/local/tmp/{name} && ./{name} calls.txt'"""
_ANDROID = """Android with the API level {api} or later. An app packs the libraries as
`jniLibs/{abi}`, and loads each of them before it makes a `Model`, since backends register as they
are loaded:

```java
{loads}
```"""
_GUARD = "executorch/extension/cuda/caller_stream.h"
# In model.h of a program with delegates on a GPU. Each would run on a stream of its own, where the
# next one could read a value too early; ExecuTorch's copies take the guard's stream, too.
_STREAM = {
    "stream_header": f"#include <{_GUARD}>\n",
    "stream": """
  // The CUDA stream on which all delegates run, one after another; null is the default stream. A
  // call returns after its outputs are copied.
  cudaStream_t stream = nullptr;
""",
    "guard": "    const executorch::extension::cuda::CallerStreamGuard guard(stream);\n",
}


def write(
    program: Path,
    folder: Path | None = None,
    data: Path | None = None,
    target: Target | None = None,
    vendors: Sequence[Path] = (),
) -> Path:
    """Write a project around a .pte, or nothing of it, and return its folder.

    Args:
        program: The .pte, which is copied.
        folder: The folder of the project, which must not exist; `net-app` for net.pte if None.
        data: Its .ptd; None searches next to the .pte.
        target: Where it will run; None for this machine.
        vendors: Libraries with backends and kernels that ExecuTorch's don't have, which are copied.

    Raises:
        EtdevError: The folder exists, or no library has a kernel or a backend of the .pte.
    """
    source = ProgramFile(program)
    data = data or source.find_data()
    folder = folder or Path(f"{program.stem}-app")
    if folder.exists() or folder.is_symlink():
        raise EtdevError(str(folder), "is there already", "name another folder")
    numbers = source.unpack(numbers_of)
    methods = methods_of(source.artifact, source.plan, sum(numbers.get(LENGTH, ())))
    texts = rendered(source.artifact, methods, data, target, numbers, vendors)
    with files.unseen(folder) as draft, files.writing(folder):
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
        for name in _SCRIPTS:
            (draft / name).chmod(0o755)
        for file in filter(None, (program, data, *vendors)):
            shutil.copyfile(file, draft / file.name)
        lines = [_example(source, method, draft) for method in methods]
        (draft / "calls.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        draft.rename(folder)
    return folder


def rendered(  # noqa: PLR0913 - all but the first two have defaults
    artifact: Artifact,
    methods: Sequence[Method],
    data: Path | None = None,
    target: Target | None = None,
    numbers: dict[str, list[int]] | None = None,
    vendors: Sequence[Path] = (),
) -> dict[str, str]:
    """Return the text of each file of a project, by its name.

    `numbers` are what the methods without inputs say, see `numbers_of`; `vendors` as for `write`.
    """
    program = Path(artifact.path)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", program.stem)
    wheel = Place(target).wheel() if target else Wheel.here()
    own = [_linkable(path) for path in vendors]
    needed = linked(names_in(artifact.methods), [*wheel.libraries(), *own])
    if needed.missing:
        given = "".join(f", nor {library.path.name}," for library in own)
        what = f"no library of ExecuTorch's wheel{given} has {', '.join(needed.missing)}"
        raise RunError(artifact.path, what, "give those of their vendors with --library FILE")
    delegates = [delegate for method in artifact.methods for delegate in method.delegates]
    on_gpu = any(delegate.device.type == "cuda" for delegate in delegates)
    if on_gpu and not any((folder / _GUARD).exists() for folder in wheel.includes):
        what = f"its delegates on a GPU share a stream, and this ExecuTorch has no {_GUARD}"
        raise RunError(artifact.path, what, "install ExecuTorch's wheel for CUDA")
    compiler = Place(target).compiler().words if target else ("c++",)
    libraries = [library for library in needed.libraries if library not in own] + own
    read = [program.name, *([data.name] if data else [])]
    paths = ("kProgram", "kData")[: len(read)]
    values = {
        **interface.rendered(artifact, methods),
        **generation.parts(artifact, numbers or {}, name),
        **{part: text if on_gpu else "" for part, text in _STREAM.items()},
        "name": name,
        "program": program.name,
        "version": wheel.version,
        "executorch": wheel.folder,
        "standard": STANDARD,
        "macros": " ".join(DEFINITIONS),
        "definitions": " ".join(f"-D{name}" for name in DEFINITIONS),
        "compiler": shlex.join(compiler),
        "compiler_name": compiler[0],
        "compiler_flags": shlex.join(compiler[1:]),
        "processor": target.processor if target else platform.machine(),
        **_on_device(name, target, libraries),
        "toolchain": f" -DCMAKE_TOOLCHAIN_FILE={_TOOLCHAIN}" if target else "",
        "libraries": " ".join(f"-l{library.name}" for library in libraries),
        "shared": " ".join(lib.path.name for lib in libraries if lib not in own),
        "vendors": "".join(f" -l{library.name}" for library in own),
        "data": " ".join([*read, *(library.path.name for library in own)]),
        "beside": f" and `{data.name}`" if data else "",
        "constants": f'  static constexpr const char* kData = "{data.name}";' if data else "",
        "share_arenas": str(artifact.shares_state).lower(),
        "parameter": ", const std::string& data = kData" if data else "",
        "files": "std::vector<std::string>{data}" if data else "std::vector<std::string>{}",
        "paths": ", ".join(f"(binary / Model::{path}).string()" for path in paths),
        "sizes": _sizes([*filter(None, (program, data)), *(lib.path for lib in libraries)]),
    }
    templates = resources(__package__) / "templates"
    loop = generation.loop(artifact, numbers or {}, program.name, methods)
    names = {
        entry: entry.name.removesuffix(_ENDING)
        for entry in templates.iterdir()
        if entry.name.endswith(_ENDING) and entry.name not in _TOOLCHAINS.values()
    }
    if target:
        names[templates / _TOOLCHAINS[Android.of(target.triple) is not None]] = _TOOLCHAIN
    return loop | {
        name: Template(entry.read_text("utf-8")).substitute(values) for entry, name in names.items()
    }


def _linkable(path: Path) -> Library:
    """Return a vendor's library, whose name has to be one for the linker."""
    if not re.fullmatch(r"lib.+\.(so|dylib)", path.name):
        raise EtdevError(str(path), "has a name that linkers don't look for", "call it libNAME.so")
    return Library.at(path)


def _on_device(name: str, target: Target | None, libraries: Sequence[Library]) -> dict[str, Any]:
    """Return what the README says about the device, and what the toolchain file has of it."""
    host = (target and target.host) or ""
    android = Android.of(target.triple) if target else None
    if not android:
        copy = _COPY.format(host=host or "device", name=name)
        return {"copy": copy, "asks_for": f"{_GLIBC}.", "abi": "", "api": ""}
    copy = _PUSH.format(adb=f"adb -s {host}" if host else "adb", name=name)
    loads = "\n".join(f'System.loadLibrary("{library.name}");' for library in libraries)
    facts = {"abi": android.abi, "api": android.api}
    return {"copy": copy, "asks_for": _ANDROID.format(loads=loads, **facts), **facts}


def _sizes(parts: Sequence[Path]) -> str:
    sizes = {part.name: part.stat().st_size for part in parts}
    return "\n".join(f"| `{name}` | {own:,} ({size(own)}) |" for name, own in sizes.items())


def _example(program: ProgramFile, method: Method, folder: Path) -> str:
    """Write inputs of a method to a folder, and return the line of a call with them."""
    words = [method.name]
    inputs = program.inputs(method.name, program.random_inputs(method.name))
    for (own, _), value in zip(method.inputs, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            name = f"{re.sub(r'[^A-Za-z0-9_]', '_', method.name)}.{own}.bin"
            (folder / name).write_bytes(raw(value))
            words.append(f"{name}:{'x'.join(map(str, value.shape))}")
        elif value is not None:
            words.append(str(value).lower())
    return " ".join(words)
