"""Instructions of a method of a .pte, in the order in which they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import frozen

from etdev.pte.opening import opened, program_of
from etdev.pte.read import COPIES, operator_name


@frozen
class InstructionStep:
    """An instruction.

    Args:
        kind: `delegate`, `kernel`, `copy` between devices, or `control` for jumps and the like.
        name: Its backend or operator.
        delegate: Position of a delegate in the order of first calls, as in `MethodPlan.delegates`.
        chain: Number of its chain of instructions.
        index: Its position in the chain.
    """

    kind: str
    name: str
    delegate: int | None = None
    chain: int = 0
    index: int = 0


def steps(path: Path, method: str) -> list[InstructionStep]:
    """Read the instructions of a method, chain after chain."""

    def read(data: memoryview) -> list[InstructionStep]:
        program, _ = program_of(data)
        plan = next(plan for plan in program.execution_plan if plan.name == method)
        order: dict[int, int] = {}
        return [
            InstructionStep(*kind_of(plan, item.instr_args, order), chain=number, index=index)
            for number, chain in enumerate(plan.chains)
            for index, item in enumerate(chain.instructions)
        ]

    return opened(path, read)


def kind_of(plan: Any, instruction: Any, order: dict[int, int]) -> tuple[str, str, int | None]:
    """Return the kind and name of an instruction, and a delegate's position in the order."""
    kind = type(instruction).__name__
    if kind == "DelegateCall":
        index = instruction.delegate_index
        return "delegate", str(plan.delegates[index].id), order.setdefault(index, len(order))
    if kind == "KernelCall":
        name = operator_name(plan.operators[instruction.op_index])
        return "copy" if name.startswith(COPIES) else "kernel", name, None
    return "control", kind, None
