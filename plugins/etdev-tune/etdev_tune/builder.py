"""Lowering of candidates to .pte files, each with the registry and arguments of the user."""

from __future__ import annotations

import errno
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen
from blake3 import blake3

from etdev import Lowered, Plan
from etdev.app import EagerMethod, ProgramFile, Setup, files
from etdev.errors import ArtifactError, EtdevError, PluginError, first_line
from etdev.pte.artifact import MethodArtifact
from etdev_tune.candidate import Candidate
from etdev_tune.exchange import Failure
from etdev_tune.toml_writer import toml_of

# Number of conversions that are kept for later candidates.
_KEPT = 3
# Compilers and ExecuTorch's emission write temporary files, too.
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@frozen(eq=False)
class Build:
    """A candidate as a .pte.

    Args:
        data: Paths of its .ptd files.
        digest: Digest of all files; equal ones are measured once.
        size_bytes: Size of all files.
        runtime_bytes: Size of the libraries of ExecuTorch that a C++ program needs for it, as far
            as the installed ExecuTorch has them; 0 without etdev-cpp.
        methods: Inputs and outputs of its methods, by name.
        seconds: Seconds that it took.
    """

    candidate: Candidate
    path: Path
    data: tuple[Path, ...]
    digest: str
    size_bytes: int
    runtime_bytes: int
    methods: Mapping[str, MethodArtifact]
    plan: Plan
    seconds: float

    @property
    def deployed_bytes(self) -> int:
        """Size of all files and libraries, which is the objective `size`."""
        return self.size_bytes + self.runtime_bytes

    @property
    def arena_bytes(self) -> int:
        """Planned memory of the method that needs the most."""
        sizes = [sum(arena.size_bytes for arena in m.arenas) for m in self.methods.values()]
        return max(sizes, default=0)

    @property
    def delegates(self) -> int:
        """Number of delegates of all methods."""
        return sum(len(method.partitions) for method in self.plan.methods)

    @property
    def portable_nodes(self) -> int:
        """Number of nodes on portable kernels."""
        return sum(len(method.fallback) for method in self.plan.methods)


@define(eq=False)
class Builder:
    """Lowering of candidates to files in a folder."""

    methods: Mapping[str, EagerMethod]
    setup: Setup
    folder: Path
    _builds: dict[str, Build | Failure] = field(factory=dict)
    # What `Lowerer.lower_again` takes.
    _decisions: dict[str, Any] = field(factory=dict)

    def build(self, candidate: Candidate) -> Build | Failure:
        """Lower a candidate once; a refusal of a plugin or ExecuTorch is a finding about it."""
        known = self._builds.get(candidate.key)
        if known is None:
            known = self._builds[candidate.key] = self._attempt(candidate)
        return evolve(known, candidate=candidate) if isinstance(known, Build) else known

    def final(self, candidate: Candidate, path: Path, registry: Path) -> tuple[Build, str]:
        """Lower a candidate as a user would with its registry file, which is written first.

        Returns:
            The build, and the text of its lock.

        Raises:
            EtdevError: As `Lowerer.lower` and `Lowered.save`.
        """
        start = time.perf_counter()
        head = [
            f"Written by etdev tune: {candidate.name}.",
            "etdev lower --registry reads it, and makes the same .pte without measuring anything.",
        ]
        files.write_text(registry, toml_of(candidate.registry(self.setup.registry), head))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lowerer = self.setup.lowerer(registry)
            lowered = lowerer.lower({name: own.source for name, own in self.methods.items()})
            # As etdev lower does, which the lock is for.
            lowered.save(path, with_ledger=True)
            lock = self.setup.lock(lowerer, lowered, path)
        return _described(candidate, path, lowered, time.perf_counter() - start), lock

    def _attempt(self, candidate: Candidate) -> Build | Failure:
        start = time.perf_counter()
        place = self.folder / f"{len(self._builds):03d}"
        with files.in_scratch():
            place.mkdir(parents=True, exist_ok=True)
        try:
            with warnings.catch_warnings():
                # Such as about a pin that matches nothing, or a registry without plugins.
                warnings.simplefilter("ignore")
                lowered = self._lowered(candidate)
                path = lowered.save(place / "program.pte", with_ledger=True)
            return _described(candidate, path, lowered, time.perf_counter() - start)
        except EtdevError as error:
            cause: Any = error
            while cause and not isinstance(cause, OSError):
                cause = cause.__cause__
            if cause and (isinstance(error, ArtifactError) or cause.errno in _NO_ROOM):
                # A full disk says nothing about the candidate.
                raise files.no_room(cause) from error
            return Failure("refused", first_line(error))

    def _lowered(self, candidate: Candidate) -> Lowered:
        """Lower a candidate; those with the same plugins and options share a conversion."""
        lowerer = self.setup.lowerer(candidate.registry(self.setup.registry))
        key = evolve(candidate, pins=()).key
        known = self._decisions.get(key)
        if known is None:
            lowered = lowerer.lower({name: own.exported for name, own in self.methods.items()})
            # Conversions are as large as the model.
            self._decisions = dict([*self._decisions.items(), (key, lowered.lowering)][-_KEPT:])
            return lowered
        return lowerer.lower_again(known)


def _library_bytes(program: ProgramFile) -> int:
    try:
        return program.library_bytes()
    except PluginError:
        return 0


def _described(candidate: Candidate, path: Path, lowered: Lowered, seconds: float) -> Build:
    """Describe the build of files that are written."""
    data = tuple(sorted(path.parent.glob(f"{path.stem}.*.ptd")))
    digest = blake3()
    for file in (path, *data):
        digest.update(file.name.removeprefix(path.stem).encode())
        digest.update(file.read_bytes())
    program = ProgramFile(path)
    return Build(
        candidate=candidate,
        path=path,
        data=data,
        digest=digest.hexdigest(),
        size_bytes=sum(file.stat().st_size for file in (path, *data)),
        runtime_bytes=_library_bytes(program),
        methods={method.name: method for method in program.artifact.methods},
        plan=lowered.plan,
        seconds=seconds,
    )
