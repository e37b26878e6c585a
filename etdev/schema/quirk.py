"""A row of the quirks table: a fault of torch, ExecuTorch or a backend, and its fix or refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen

from etdev.errors import EtdevError, LoweringError
from etdev.schema.converters import frozen_tuple
from etdev.schema.fault import Fault

if TYPE_CHECKING:
    from torch.fx import Node


class Stage(Enum):
    """The points of a lowering at which rows look at a program, in this order."""

    EXPORT = "export"
    """A `Method`, a module with example inputs or a program, before torch.export."""
    METHODS = "methods"
    """The programs of all methods together, as torch.export made them, by name."""
    SOURCE = "source"
    """ATen, as torch.export made it, and again after plugins have rewritten it."""
    ATEN = "aten"
    """ATen that writes in place, before torch makes it functional."""
    FUNCTIONAL = "functional"
    """ATen that writes nothing in place, before and after ExecuTorch's decompositions."""
    DECOMPOSED = "decomposed"
    """ATen, decomposed as far as it goes, just before it becomes edge dialect."""
    LOOP = "loop"
    """ATen, converted as `Lowerer` would, as `etdev.partitioner()` gives it back to ExecuTorch."""
    EDGE = "edge"
    """Edge dialect, as ExecuTorch made it or as it was given."""
    SIMPLIFIED = "simplified"
    """Edge dialect without redundant work, before plugins claim nodes."""
    PLANNED = "planned"
    """Edge dialect with the calls of delegates in it."""
    EMIT = "emit"
    """A GraphModule in the passes of `to_executorch`, with memory specs."""


@frozen(eq=False)
class Nodes:
    """The nodes of a program that a row looks for.

    Args:
        ops: Call one of these: ATen ops (at later stages the ops that edge ops are made of),
            functions, higher-order ops. Empty takes every node of the graph.
        only: A predicate that they satisfy, too.
        branches: Look into the graphs of control flow as well.
    """

    ops: tuple[Any, ...] = field(default=(), converter=frozen_tuple)
    only: Callable[[Node], bool] | None = None
    branches: bool = False


@frozen(eq=False)
class Since:
    """A difference, found between a program and the one that etdev was given.

    Args:
        find: A function of the given program and the current one; it returns what it finds.
    """

    find: Callable[[Any, Any], Iterable[Any]]


# A function is given the program (at `EMIT` the GraphModule), and may find anything.
Find = Nodes | Since | Callable[[Any], Iterable[Any]]


# Applies the rows of a stage to the program of a method, as `Quirks.apply` does.
Apply = Callable[..., Any]


class Quirks(Protocol):
    """The rows of a table at work, see etdev/quirks/table.py."""

    def apply(self, stage: Stage, program: Any, method: str, source: Any = None) -> Any:
        """Fix or refuse what the rows of a stage find."""

    def during(
        self, stage: Stage, program: Any
    ) -> AbstractContextManager[list[Callable[[Any], None]]]:
        """Enter the contexts in which upstream's part of a stage has to run."""


def _as_stages(value: Any) -> tuple[Stage, ...]:
    return (value,) if isinstance(value, Stage) else frozen_tuple(value)


@frozen(eq=False)
class Refusal:
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
    find: Find | None = None
    error: type[EtdevError] = LoweringError
    warns: bool = False


@frozen(eq=False, kw_only=True)
class Quirk(Fault):
    """A fault of another project, as `Fault` has it, and its fix or refusal.

    Args:
        name: Its name in kebab case, which its repro in tests/support/quirks shares.
        stage: The stage or stages that look for it.
        summary: The fault, in one sentence.
        find: Finds what it affects: nodes, or a function of the program.
        fix: Given the program and the findings, returns a program without the fault. It may change
            the given program at `LOOP`, `PLANNED` and `EMIT`, not before. It raises ValueError or
            RuntimeError where it can't fix it.
        refusal: Raised without a fix, or where the fix fails.
        in_loop: Raised by `etdev.partitioner()` where only `Lowerer` can fix it.
        during: At `EXPORT`, given the findings, makes a context in which torch.export runs. It may
            yield a function, which gets the program afterwards and may refuse it.
        undefined: Upstream may be right by luck, as with uninitialised memory.
    """

    name: str
    stages: tuple[Stage, ...] = field(alias="stage", converter=_as_stages)
    summary: str
    find: Find
    fix: Callable[[Any, list[Any]], Any] | None = None
    refusal: Refusal | None = None
    in_loop: Refusal | None = None
    during: Callable[[list[Any]], AbstractContextManager[Any]] | None = None
    undefined: bool = False

    def __attrs_post_init__(self) -> None:
        if not (self.fix or self.refusal or self.in_loop or self.during):
            raise EtdevError(self.name, "does nothing", "give it a fix or a refusal")
        if self.during and self.stages != (Stage.EXPORT,):
            raise EtdevError(self.name, "has `during` at another stage", "give it a fix")
