"""C++ projects that run a .pte, rendered from templates and written all or none."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path
from string import Template

import torch

from etdev.app import ProgramFile, files, size
from etdev.errors import EtdevError, RunError
from etdev.pte.artifact import Artifact
from etdev.schema.target import Target
from etdev_cpp import generation, interface
from etdev_cpp.frames import raw
from etdev_cpp.generation import numbers_of
from etdev_cpp.libraries import linked, names_in
from etdev_cpp.place import Place
from etdev_cpp.wheel import DEFINITIONS, STANDARD, Wheel

_ENDING = ".txt"
# They run, too.
_SCRIPTS = ("build.sh",)
_COMPONENT = "executorch"
# It is written for another processor only.
_TOOLCHAIN = "toolchain.cmake"
# In model.h of a program with delegates on a GPU. Each would run on a stream of its own, where the
# next one could read a value too early; ExecuTorch's copies take the guard's stream, too.
_STREAM = {
    "stream_header": "#include <executorch/extension/cuda/caller_stream.h>\n",
    "stream": """
  // The CUDA stream on which all delegates run, one after another; null is the default stream. A
  // call returns after its outputs are copied.
  cudaStream_t stream = nullptr;
""",
    "guard": "    const executorch::extension::cuda::CallerStreamGuard guard(stream);\n",
}
# How README.md ends.
_HERE = "; copy them there to run it elsewhere."
_THERE = (
    ", where `build.sh` puts them: copy the folder `build` and the files of `calls.txt` to the "
    "target. CMake takes `-DCMAKE_TOOLCHAIN_FILE=toolchain.cmake`."
)


def write(
    program: Path,
    folder: Path | None = None,
    data: Path | None = None,
    target: Target | None = None,
) -> Path:
    """Write a project around a .pte, or nothing of it, and return its folder.

    Args:
        program: The .pte, which is copied.
        folder: The folder of the project, which must not exist; `net-app` for net.pte if None.
        data: Its .ptd; None searches next to the .pte.
        target: Where it will run; None for this machine.

    Raises:
        EtdevError: The folder exists, or no library has a kernel or a backend of the .pte.
    """
    source = ProgramFile(program)
    data = data or source.find_data()
    folder = folder or Path(f"{program.stem}-app")
    if folder.exists() or folder.is_symlink():
        raise EtdevError(str(folder), "is there already", "name another folder")
    texts = rendered(source.artifact, data, target, source.unpack(numbers_of))
    with files.unseen(folder) as draft, files.writing(folder):
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
        for name in _SCRIPTS:
            (draft / name).chmod(0o755)
        for file in filter(None, (program, data)):
            shutil.copyfile(file, draft / file.name)
        lines = [_example(source, method.name, draft) for method in source.artifact.methods]
        (draft / "calls.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        draft.rename(folder)
    return folder


def rendered(
    artifact: Artifact,
    data: Path | None = None,
    target: Target | None = None,
    numbers: dict[str, list[int]] | None = None,
) -> dict[str, str]:
    """Return the text of each file of a project, by its name.

    `numbers` are what the methods without inputs say, see `numbers_of`.
    """
    program = Path(artifact.path)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", program.stem)
    wheel = Place(target).wheel() if target else Wheel.here()
    needed = linked(names_in(artifact.methods), wheel.libraries())
    if needed.missing:
        what = f"no library of ExecuTorch's wheel has {', '.join(needed.missing)}"
        raise RunError(artifact.path, what, "link the libraries of their vendors yourself")
    names = [library.name for library in needed.libraries]
    copied = [program.name, *([data.name] if data else [])]
    paths = ("kProgram", "kData")[: len(copied)]
    delegates = [delegate for method in artifact.methods for delegate in method.delegates]
    on_gpu = any(delegate.device.type == "cuda" for delegate in delegates)
    values = {
        **interface.rendered(artifact),
        **generation.parts(artifact, numbers or {}, name),
        **{part: text if on_gpu else "" for part, text in _STREAM.items()},
        "name": name,
        "program": program.name,
        "version": wheel.version,
        "executorch": wheel.folder,
        "standard": STANDARD,
        "definitions": " ".join(f"-D{name}" for name in DEFINITIONS),
        "keep": "-Wl,--no-as-needed",
        "compiler": " ".join(Place(target).compiler().words) if target else "c++",
        "elsewhere": _THERE if target else _HERE,
        "processor": target.processor if target else platform.machine(),
        "libraries": " ".join(f"-l{name}" for name in names),
        "components": " ".join(_target(name) for name in names),
        "data": " ".join(copied),
        "shipped": " ".join(f'"$EXECUTORCH/lib/lib{name}.so"' for name in names if target),
        "constants": f'  static constexpr const char* kData = "{data.name}";' if data else "",
        "share_arenas": str(artifact.shares_state).lower(),
        "parameter": ", const std::string& data = kData" if data else "",
        "files": "std::vector<std::string>{data}" if data else "std::vector<std::string>{}",
        "paths": ", ".join(f"(binary / Model::{path}).string()" for path in paths),
        "sizes": _sizes([*filter(None, (program, data)), *(lib.path for lib in needed.libraries)]),
    }
    templates = resources(__package__) / "templates"
    loop = generation.loop(artifact, numbers or {}, program.name, ("input0", "input1", "output0"))
    return loop | {
        entry.name.removesuffix(_ENDING): Template(entry.read_text("utf-8")).substitute(values)
        for entry in templates.iterdir()
        if entry.name.endswith(_ENDING) and (target or entry.name != f"{_TOOLCHAIN}{_ENDING}")
    }


def _target(library: str) -> str:
    """Return the CMake target of a library: `executorch::backend_xnnpack`, say."""
    return f"executorch::{library.removeprefix(_COMPONENT).removeprefix('_') or 'runtime'}"


def _sizes(parts: Sequence[Path]) -> str:
    sizes = {part.name: part.stat().st_size for part in parts}
    return "\n".join(f"| `{name}` | {own:,} ({size(own)}) |" for name, own in sizes.items())


def _example(program: ProgramFile, method: str, folder: Path) -> str:
    """Write inputs of a method to a folder, and return the line of a call with them."""
    words = [method]
    inputs = program.inputs(method, program.random_inputs(method))
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            name = f"{re.sub(r'[^A-Za-z0-9_]', '_', method)}.input{index}.bin"
            (folder / name).write_bytes(raw(value))
            words.append(f"{name}:{'x'.join(map(str, value.shape))}")
        elif value is not None:
            words.append(str(value).lower())
    return " ".join(words)
