"""The runner `cpp`: ExecuTorch's C++ runtime in a process of its own, which etdev builds."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import IO, Any

from attrs import define, evolve, field
from blake3 import blake3

from etdev.app import files
from etdev.errors import RunError
from etdev.pte.artifact import MethodArtifact
from etdev.runtime.child import LIMIT_S, Child, ChildResult, Raised
from etdev.runtime.runners import CallResult, Calls, Program
from etdev.schema.target import Target
from etdev_cpp import build
from etdev_cpp.frames import Reader, framed, number, several, text, value
from etdev_cpp.libraries import linked
from etdev_cpp.place import Place
from etdev_cpp.wheel import Wheel

NAME = "the C++ runtime"
# Where the delegate of OpenVINO finds OpenVINO.
OPENVINO = "OPENVINO_LIB_PATH"


@define(eq=False)
class CppRunner:
    """A runner whose process is a C++ program.

    Args:
        flags: Options of the compiler that builds it.
        place: Where it runs; None for this machine.
    """

    flags: Sequence[str] = ("-O2",)
    place: Place | None = None
    _child: Child | None = field(default=None, init=False)
    # Folders of programs on the host, by the digests of the files.
    _folders: dict[str, str] = field(factory=dict, init=False)

    @property
    def name(self) -> str:
        return self.place.name if self.place else "cpp"

    @property
    def emulated(self) -> bool:
        """True if its times say nothing about the target."""
        return bool(self.place and self.place.model)

    def lacking(self, backends: Iterable[str]) -> list[str]:
        """Return the backends that its runtime lacks, as far as it runs; else its libraries."""
        if self._child and self._child.is_running:
            return self._lacks(list(backends), ())[0]
        wheel = self.place.wheel() if self.place else Wheel.here()
        return list(linked(backends, wheel.libraries()).missing)

    @property
    def facts(self) -> dict[str, str]:
        """Return what a lock records of where it runs."""
        return self.place.facts() if self.place else {"name": self.name}

    def on_target(self, target: Target) -> list[CppRunner]:
        """Return its runners for a target."""
        return [_runner_at(place, tuple(self.flags)) for place in Place.of(target)]

    @property
    def verifies(self) -> bool:
        """True if there is a compiler, since it loads what executorch.runtime loads."""
        return bool(build.find())

    def prepare(self) -> None:
        """Build the program if it isn't there, and start it.

        Raises:
            RunError: It can't be built.
        """
        if self._child is None:
            self._child = self._made_for(self.place) if self.place else self._made()
            atexit.register(self.close)
        self._child.start()

    def _made(self) -> Child:
        return Child(NAME, _environment(), (str(build.runner(self.flags)),))

    def _made_for(self, place: Place) -> Child:
        wheel = place.wheel()
        program = build.runner(self.flags, wheel, place.compiler())
        place.send(program, wheel)
        return Child(f"{NAME} on {place.name}", {}, place.command(program))

    def close(self) -> None:
        """End the process."""
        if self._child:
            self._child.close()
        if self.place:
            self.place.remove([*self._folders.values()])
            self._folders.clear()
            # The host may be another machine by the next call.
            self._child = None

    def missing(self, method: MethodArtifact) -> tuple[list[str], list[str]]:
        """Return the backends and the kernels that the wheel's libraries lack for a method."""
        backends = list(dict.fromkeys(delegate.backend_id for delegate in method.delegates))
        return self._lacks(backends, method.operators)

    def _lacks(
        self, backends: Sequence[str], kernels: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        order = framed([b"k", *several(backends, text), *several(kernels, text)])
        outcome = self._ask(order, lambda reader: (reader.texts(), reader.texts()))
        if outcome.failure:
            cure = self.place.cure if self.place else "report this"
            raise RunError(self.name, outcome.failure, cure)
        lacking: tuple[list[str], list[str]] = outcome.values[0]
        return lacking

    def load(self, program: Program, method: str) -> ChildResult:
        """Load a method, and yield no value."""
        return self._about(program, b"l", text(method))

    def call(self, program: Program, calls: Calls, repeat: int, limit_s: float) -> ChildResult:
        """Call methods in turn in one loaded program; the values are a CallResult for each."""

        def one(call: tuple[str, Sequence[Any]]) -> Iterator[bytes]:
            name, inputs = call
            return chain(text(name), several(inputs, value))

        order = chain([number("Q", repeat)], several(calls, one))
        return self._about(program, b"r", order, _result, limit_s)

    def trace(
        self, program: Program, method: str, inputs: Sequence[Any], count: int
    ) -> ChildResult:
        """Call a method several times; the value is its ETDump."""
        order = chain(text(method), several(inputs, value), [number("Q", count)])
        return self._about(program, b"t", order)

    def _about(
        self,
        program: Program,
        kind: bytes,
        rest: Iterable[bytes],
        read: Callable[[Reader], Any] = Reader.blob,
        limit_s: float = LIMIT_S,
    ) -> ChildResult:
        """Send an order about a program."""
        with files.scratch() as folder:
            path = Path(folder) / "program.pte"
            if isinstance(program.source, Path):
                path = program.source
            else:
                with files.in_scratch():
                    path.write_bytes(program.source)
            known = list(chain(*map(text, self._paths(path, program.data))))
            known.append(number("?", program.share_arenas))
            try:
                order = framed([kind, *known, *rest])
            except TypeError as error:
                return ChildResult((), f"{NAME} failed with {error}")
            return self._ask(order, read, limit_s)

    def _paths(self, program: Path, data: Path | None) -> tuple[str, str]:
        """Return the paths of a program and its data where it runs."""
        if not self.place or self.place.here:
            return str(program), str(data or "")
        parts = {"program.pte": program} | ({"program.ptd": data} if data else {})
        digest = blake3(b"".join(file.read_bytes() for file in parts.values())).hexdigest()
        if digest not in self._folders:
            self._folders[digest] = self.place.put(parts)
        folder = self._folders[digest]
        return f"{folder}/program.pte", f"{folder}/program.ptd" if data else ""

    def _ask(
        self, order: bytes, read: Callable[[Reader], Any], limit_s: float = LIMIT_S
    ) -> ChildResult:
        """Send an order, and read the value of each answer."""

        def answers(stream: IO[bytes]) -> Iterator[Any]:
            while True:
                reader = Reader.next(stream)
                kind = reader.number("c")
                if kind == b"e":
                    raise Raised(reader.text())
                if kind != b"v":
                    return
                yield read(reader)

        self.prepare()
        assert self._child
        outcome = self._child.ask(order, answers, limit_s)
        if outcome.failure and self.place and not self.place.here:
            return evolve(outcome, failure=self.place.told(outcome.failure))
        return outcome


@cache
def _runner_at(place: Place, flags: tuple[str, ...]) -> CppRunner:
    return CppRunner(flags, place)


def _result(reader: Reader) -> CallResult:
    outputs, inputs = reader.several(reader.value), reader.several(reader.value)
    return CallResult(outputs, inputs, reader.several(lambda: reader.number("d")))


def _environment() -> dict[str, str]:
    """Return the variables by which delegates find their libraries, as executorch.runtime does."""
    if os.environ.get(OPENVINO):
        return {}
    spec = find_spec("openvino")
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = [file for place in places for file in Path(place, "libs").glob("libopenvino_c.so*")]
    return {OPENVINO: str(min(found))} if found else {}


RUNNER = CppRunner()
