"""A row of the quirks table: a fault of torch, ExecuTorch or a backend, and its fix or refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from attrs import field, frozen

from etdev.errors import EtdevError, LoweringError
from etdev.schema.converters import frozen_tuple
from etdev.schema.fault import Fault
from etdev.schema.stages import EXPORT, Stage

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

    from etdev.schema.method import Method

In = TypeVar("In")
In_contra = TypeVar("In_contra", contravariant=True)
T = TypeVar("T")
# Given the program that torch.export made; may refuse it, or return why later calls of it may not
# give the model's values.
Check = Callable[["ExportedProgram"], "str | None"]
# An op that a node may call: an ATen op, a function, a higher-order op.
Op = Any


@frozen(eq=False)
class Nodes:
    """The nodes of a program that a row looks for.

    Args:
        ops: Call one of these: ATen ops (at later stages the ops that edge ops are made of),
            functions, higher-order ops. Empty takes every node of the graph.
        only: A predicate that they satisfy, too.
        branches: Look into the graphs of control flow as well.
    """

    ops: tuple[Op, ...] = field(default=(), converter=frozen_tuple)
    only: Callable[[Node], bool] | None = None
    branches: bool = False

    if TYPE_CHECKING:
        # For the types of a row; the table finds the nodes of all rows in one walk.
        def __call__(self, program: ExportedProgram | GraphModule) -> Iterable[Node]: ...


@frozen(eq=False)
class SourceDifference(Generic[T]):
    """A difference between a program and the one that etdev was given, which a row looks for.

    Args:
        find: A function of the current program and the given one; it returns what it finds.
    """

    find: Callable[[ExportedProgram, ExportedProgram], Iterable[T]]

    if TYPE_CHECKING:
        # For the types of a row; the table knows the given program.
        def __call__(self, program: ExportedProgram) -> Iterable[T]: ...


class Quirks(Protocol):
    """The rows of a table at work, see etdev/quirks/table.py."""

    # Why later calls of a method may not give the model's values, by method.
    doubts: dict[str, str]

    def apply(
        self, stage: Stage[In], program: In, method: str, source: ExportedProgram | None = None
    ) -> In:
        """Fix or refuse what the rows of a stage find."""

    def during(self, program: Method) -> AbstractContextManager[list[Check]]:
        """Enter the contexts in which torch.export has to run."""


def _as_stages(value: Stage[In] | Iterable[Stage[In]]) -> tuple[Stage[In], ...]:
    return (value,) if isinstance(value, Stage) else frozen_tuple(value)


@frozen(eq=False)
class Rejection(Generic[In_contra]):
    """The error where a fault can't be fixed.

    Args:
        what: The fault, as a format string: `{found}`, `{found.name}`, `{names}` of everything
            found, `{ops}` of all found nodes with their lines; `{method}`; `{op}` of a node and
            `{where}`, its line in the user's code; and `{error}` of a fix, with its first
            line, `{why}`.
        cure: The advice, as a format string.
        find: Finds what is refused, if the row's `find` does not.
        error: The class of the error.
        warns: Warn instead of raising the error.
    """

    what: str
    cure: str
    find: Callable[[In_contra], Iterable[object]] | None = None
    error: type[EtdevError] = LoweringError
    warns: bool = False


@frozen(eq=False, kw_only=True)
class Quirk(Fault, Generic[In, T]):
    """A fault of another project, as `Fault` has it, and its fix or refusal.

    Args:
        name: Its name in kebab case, which its repro in tests/support/quirks shares.
        stage: The stage or stages that look for it.
        summary: The fault, in one sentence.
        find: Finds what it affects: nodes, or a function of the program.
        fix: Given the program and the findings, returns a program without the fault; the type of
            its stage says whether it may change the given one. It raises ValueError or
            RuntimeError where it can't fix it.
        refusal: Raised without a fix, or where the fix fails.
        in_loop: Raised by `etdev.partitioner()` where only `Lowerer` can fix it.
        during: At `EXPORT`, given the findings, makes a context in which torch.export runs. It may
            yield a function, which gets the program afterwards, and may refuse it or return why
            later calls of it may not give the model's values.
        undefined: Upstream may be right by luck, as with uninitialised memory.
    """

    name: str
    stages: tuple[Stage[In], ...] = field(alias="stage", converter=_as_stages)
    summary: str
    find: Callable[[In], Iterable[T]]
    fix: Callable[[In, Sequence[T]], In] | None = None
    refusal: Rejection[In] | None = None
    in_loop: Rejection[In] | None = None
    during: Callable[[Sequence[T]], AbstractContextManager[Check | None]] | None = None
    undefined: bool = False

    def __attrs_post_init__(self) -> None:
        if not (self.fix or self.refusal or self.in_loop or self.during):
            raise EtdevError(self.name, "does nothing", "give it a fix or a refusal")
        if self.during and self.stages != (EXPORT,):
            raise EtdevError(self.name, "has `during` at another stage", "give it a fix")


# A row for a program of any stage, with findings of any type.
Row = Quirk[Any, Any]
