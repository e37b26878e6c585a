"""A .pte on disk, as applications read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve, field, frozen

from etdev.pte import ptd
from etdev.pte.artifact import Artifact
from etdev.pte.embedded_plan import find_ledger
from etdev.pte.opening import Opened, opened, unpacked
from etdev.pte.read import bytes_of, dtype_of, operator_name, read
from etdev.pte.reconstruction import plan_of
from etdev.schema.plan import Plan

if TYPE_CHECKING:
    from etdev.runtime.worker import Program

T = TypeVar("T")


# Not slotted: its cached members stay attributes of the class, with their docstrings.
@frozen(eq=False, slots=False)
class ProgramFile:
    """A .pte, read without torch unless inputs or a runner are asked for.

    Every member that reads the file raises an ArtifactError if it is missing, damaged or no .pte.

    Args:
        path: Its path.

    Example:
        file = ProgramFile("net.pte")
        program, inputs = file.runnable(), file.random_inputs("forward")
        (result,) = PYTHON.call(program, [("forward", inputs)], 10, 60.0).values
    """

    path: Path = field(converter=Path)

    @cached_property
    def artifact(self) -> Artifact:
        """The contents, as `etdev inspect` shows them."""
        return read(self.path)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan that it carries; None if it was saved without its ledger."""
        return find_ledger(self.path)

    def reconstructed_plan(self) -> Plan:
        """Return a plan made of its instructions, which has no nodes and no reasons."""
        return plan_of(self.path)

    def find_data(self, data: Path | None = None) -> Path | None:
        """Return the .ptd that it needs: the given one, else one next to it; None if it needs none.

        Raises:
            ArtifactError: It needs one that isn't there.
        """
        return ptd.find(self.artifact, self.path, data)

    def inputs(self, method: str, values: Sequence[Any]) -> list[Any]:
        """Return flat inputs of a method as the runtime reads them in memory.

        Raises:
            RunError: It has no such method, or the method takes other inputs.
        """
        from etdev.runtime.inputs import prepared

        return prepared(self.artifact.method(method), values)

    def random_inputs(self, method: str = "forward", seed: int = 0) -> list[Any]:
        """Return inputs that a method takes: normal floats, and zeros for integers."""
        from etdev.runtime.inputs import random_inputs

        return random_inputs(self.path, method, seed)

    def runnable(self, data: Path | None = None, share_arenas: bool = False) -> Program:
        """Return it as the runners of etdev/runtime/runners.py load it.

        Args:
            data: Its .ptd.
            share_arenas: Its methods share planned memory, and with it their state.
        """
        from etdev.runtime.worker import Program

        program = Program.of(self.path, self.artifact.methods, data)
        return evolve(program, share_arenas=share_arenas)

    @staticmethod
    def check_libraries() -> None:
        """Raise a PluginError if etdev-cpp is missing, which counts the bytes of libraries."""
        from etdev.runtime.libraries import counter

        counter()

    def library_bytes(self) -> int:
        """Return the size in bytes of the libraries that a C++ program links to run it.

        Raises:
            PluginError: etdev-cpp is not installed, which counts them.
        """
        from etdev.runtime.libraries import counter

        return counter()(self.artifact.methods, None)

    def unpack(self, use: Callable[[Opened], T]) -> T:
        """Call a function with ExecuTorch's schema object and the segments, and return its result.

        The bytes are those of the file, mapped into memory until the function returns.
        """
        return opened(self.path, lambda data: use(unpacked(data)))

    @staticmethod
    def dtype(tensor: Any) -> str:
        """Return torch's name of the dtype of a tensor of the schema object."""
        return dtype_of(tensor)

    @staticmethod
    def size_bytes(tensor: Any) -> int:
        """Return the bytes of the values of a tensor of the schema object."""
        return bytes_of(tensor)

    @staticmethod
    def operator(operator: Any) -> str:
        """Return the name of an operator of the schema object, `aten::add.out`."""
        return operator_name(operator)
