"""The needs of a `.pte`: its bytes by part and by module, and the libraries to run it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, frozen

from etdev import Plan
from etdev.app import ProgramFile, files
from etdev_cpp.footprint import CONSTANTS, Footprint, measure
from etdev_cpp.libraries import Library, Linked, link_flags, linked

_PORTABLE = "portable"
# The most kernels that a sentence names.
_NAMED = 3
_UNNAMED = "its constants have no names in the file; give --plan, or lower it without --no-ledger"


@define
class Module:
    """The constants of a module of the model.

    Args:
        module: Its path, such as `encoder.layer.0`; empty for the model itself.
        holders: Plugins whose delegates hold them; `portable` for those outside delegates.
        constants: Their number.
        size_bytes: Their bytes in the model.
        stored_bytes: Their bytes as often as the plan has the file store them, before a backend
            packs them in its own way.
    """

    module: str
    holders: list[str]
    constants: int = 0
    size_bytes: int = 0
    stored_bytes: int = 0


@frozen
class Shared:
    """A shared library to link.

    Args:
        file: Its file name.
        size_bytes: Its size.
        needed_for: The backends and kernels that it is needed for; none for the runtime, and for a
            library that another one needs.
        saved_bytes: The bytes that a program saves which needs none of them.
    """

    file: str
    size_bytes: int
    needed_for: tuple[str, ...]
    saved_bytes: int


@frozen
class Needs:
    """The needs of a `.pte`.

    Args:
        program: Its path.
        footprint: Its bytes by part.
        plugins: The plugins of its backends, as far as a plan names them.
        modules: The constants by module, the largest first; empty if their names aren't known.
        libraries: Shared libraries of the installed ExecuTorch, the runtime first.
        missing: Backends and kernels that none of them has.
        runtime_bytes: The size of all libraries.
        link: The linker's options.
        notes: What the figures leave out, and what would make them smaller.
    """

    program: str
    footprint: Footprint
    plugins: Mapping[str, str]
    modules: tuple[Module, ...]
    libraries: tuple[Shared, ...]
    missing: tuple[str, ...]
    runtime_bytes: int
    link: tuple[str, ...]
    notes: tuple[str, ...]


def needs_of(
    path: Path,
    plan: Plan | None = None,
    libraries: Sequence[Library] | None = None,
    android: bool = False,
) -> Needs:
    """Measure a `.pte`.

    Args:
        path: The file.
        plan: Its plan; None takes the one that the file carries, if it does.
        libraries: Those to link; None for those of the installed ExecuTorch.
        android: Whether they are Android's, which apps load by their names.

    Raises:
        ArtifactError: It can't be read.
    """
    footprint = measure(path)
    plan = plan or ProgramFile(path).plan
    names = {*footprint.backends, *(kernel.name for kernel in footprint.kernels)}
    known = linked(names, libraries)
    modules = _modules(footprint, plan)
    return Needs(
        program=str(path),
        footprint=footprint,
        plugins={part.backend_id: part.plugin for part in plan.partitions} if plan else {},
        modules=tuple(sorted(modules, key=lambda module: (-module.size_bytes, module.module))),
        libraries=tuple(
            Shared(library.path.name, library.size_bytes, names, known.saved_without(library))
            for library, names in known.libraries.items()
        ),
        missing=known.missing,
        runtime_bytes=known.size_bytes,
        link=link_flags(known.libraries),
        notes=(*_notes(footprint, known, bool(modules)), *(_loaded(known) if android else ())),
    )


def _modules(footprint: Footprint, plan: Plan | None) -> list[Module]:
    """Return the constants by module, from a plan and the names of those in a .ptd file."""
    found: dict[str, Module] = {}
    sizes = {name: (size, size, {_PORTABLE}) for name, size in footprint.external.items()}
    for partition in plan.partitions if plan else ():
        for constant in partition.constants:
            _, stored, holders = sizes.get(constant.target, (0, 0, set()))
            holder = partition.plugin if constant.inside else _PORTABLE
            most = max(stored, constant.size_bytes * constant.copies)
            sizes[constant.target] = (constant.size_bytes, most, {*holders, holder})
    for target, (size, stored, holders) in sizes.items():
        name = target.rpartition(".")[0]
        module = found.setdefault(name, Module(name, []))
        module.holders = sorted({*module.holders, *holders})
        module.constants += 1
        module.size_bytes += size
        module.stored_bytes += stored
    return list(found.values())


def _notes(footprint: Footprint, known: Linked, named: bool) -> Iterator[str]:
    """Yield what the figures leave out, and what would make the file and its libraries smaller."""
    constants = any(part.kind == CONSTANTS for part in footprint.parts)
    if not named and (constants or footprint.backends):
        yield _UNNAMED
    if footprint.repeated_bytes:
        yield f"{footprint.repeated_bytes} bytes of it are stored twice"
    if not known.libraries:
        yield "this ExecuTorch has no libraries for C++; they come with ExecuTorch 1.5"
    elif known.missing:
        lacking = ", ".join(known.missing)
        yield f"no library of this ExecuTorch has {lacking}; link those of their vendors as well"
    kernels = {kernel.name for kernel in footprint.kernels}
    for library, names in known.libraries.items():
        needed = [name for name in names if name in kernels]
        if needed and (saved := known.saved_without(library)):
            yield (
                f"{known.size_bytes - saved} instead of {known.size_bytes} bytes of libraries if "
                f"delegates had {_listed(needed)}; etdev explain says why they don't"
            )
        if not kernels.issuperset(names) and library.holds("dlopen"):
            yield f"{library.path.name} loads more libraries when it runs, which are not counted"


def _loaded(known: Linked) -> Iterator[str]:
    """Yield how an app of Android gets at the backends, which register as they are loaded."""
    if known.libraries:
        names = ", ".join(library.name for library in known.libraries)
        yield f"an app loads each with System.loadLibrary before the program: {names}"


def _listed(names: Sequence[str]) -> str:
    """Return names for a sentence; the number of names if there are many."""
    return ", ".join(names) if len(names) <= _NAMED else f"its {len(names)} kernels"


def write_operators(footprint: Footprint, path: Path) -> None:
    """Write the kernels of a `.pte` as ExecuTorch's `selected_operators.yaml`.

    Raises:
        ArtifactError: It can't be written.
    """
    from executorch.codegen.tools.gen_oplist import gen_oplist

    wanted: dict[str, Any] = {kernel.name: list(kernel.keys) for kernel in footprint.kernels}
    with files.scratch() as folder:
        written = Path(folder) / path.name
        # ExecuTorch takes an empty text of operators for an error, and None for no operators.
        gen_oplist(written, ops_dict=json.dumps(wanted) if wanted else None)
        text = written.read_text("utf-8")
    files.write_text(path, text)
