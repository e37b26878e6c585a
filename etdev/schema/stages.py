"""The stages of a lowering by name, and the kind of program that each is given.

etdev/pipeline.py has them in their order with what they do. A stopwatch, errors, `-v`, bisection
and the rows of the quirks table use these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, NewType, TypeVar

from attrs import frozen

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule

    from etdev.schema.method import Method

    # A program that was made for a lowering alone: a fix may change it in place.
    OwnProgram = NewType("OwnProgram", ExportedProgram)
else:
    # torch is not imported for it.
    OwnProgram = NewType("OwnProgram", object)

In_co = TypeVar("In_co", covariant=True)


@frozen(eq=False)
class Stage(Generic[In_co]):
    """A stage of the pipeline; its type is the type of the program that it is given.

    Rows of the quirks table look at that program before the stage runs; those of `validate` after
    ExecuTorch's verifier has seen it, which refuses what their fixes add. A fix returns a changed
    copy of it, except for an `OwnProgram` or a GraphModule, which it may change in place.

    Args:
        name: The name of the stage, a verb.
        given: The program that the stage is given, in words.
    """

    name: str
    given: str = ""

    def __str__(self) -> str:
        return self.name


EXPORT: Stage[Method] = Stage(
    "export", "a `Method`, a module with example inputs or a program, before torch.export"
)
LINK: Stage[Mapping[str, ExportedProgram]] = Stage(
    "link methods", "the programs of all methods, as torch.export made them, by name"
)
PREPARE: Stage[ExportedProgram] = Stage(
    "prepare", "ATen, as torch.export made it, and again after a plugin has rewritten it"
)
FUNCTIONALISE: Stage[ExportedProgram] = Stage(
    "functionalise", "ATen that writes in place, before torch makes it functional"
)
DECOMPOSE: Stage[ExportedProgram] = Stage(
    "decompose", "functional ATen, before ExecuTorch's decompositions"
)
FINISH: Stage[ExportedProgram] = Stage(
    "finish", "functional ATen, after ExecuTorch's decompositions and before torch's"
)
TO_EDGE: Stage[ExportedProgram] = Stage(
    "to edge", "ATen, decomposed as far as it goes, just before it becomes edge dialect"
)
TRANSFORM: Stage[ExportedProgram] = Stage("transform", "edge dialect, before the caller's passes")
VALIDATE: Stage[ExportedProgram] = Stage(
    "validate", "edge dialect, as ExecuTorch has verified it or as it was given"
)
SIMPLIFY: Stage[ExportedProgram] = Stage("simplify", "edge dialect that ExecuTorch takes")
PLAN: Stage[ExportedProgram] = Stage(
    "plan", "edge dialect without redundant work, before plugins claim nodes"
)
HAND_BACK: Stage[OwnProgram] = Stage(
    "hand back",
    "ATen, converted as `Lowerer` would, before `etdev.partitioner()` gives it back to ExecuTorch",
)
SPLIT: Stage[ExportedProgram] = Stage("split", "edge dialect with the plan's nodes")
COMPILE: Stage[ExportedProgram] = Stage("compile", "a program for each partition")
JOIN: Stage[ExportedProgram] = Stage("join", "edge dialect, and the compiled partitions")
EMIT: Stage[OwnProgram] = Stage("emit", "edge dialect with the calls of delegates in it")
PLAN_MEMORY: Stage[GraphModule] = Stage(
    "plan memory", "a GraphModule in the passes of `to_executorch`, with memory specs"
)
WRITE: Stage[bytes] = Stage("write", "the emitted program")
AUDIT: Stage[bytes] = Stage("audit", "the written program")
VERIFY: Stage[bytes] = Stage("verify", "the written program")
