"""Steps: what the instructions of a method do, in the order of a .pte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from etdev.pte.opening import opened, program_of
from etdev.pte.read import COPIES, operator_name


@frozen
class Step:
    """One instruction.

    Args:
        kind: `delegate`, `kernel`, `copy` between devices, or `control` for jumps and the like.
        name: Backend or operator.
        delegate: For a delegate its position in the order of first calls, as in
            `MethodPlan.delegates`.
        chain: Which chain of instructions it is in.
        index: Which of its chain it is.
    """

    kind: str
    name: str
    delegate: int | None = None
    chain: int = 0
    index: int = 0


def steps(path: Path, method: str) -> list[Step]:
    """The instructions of a method, chain after chain.

    Raises:
        ArtifactError: The file is not a .pte.
    """

    def read(data: memoryview) -> list[Step]:
        program, _ = program_of(data)
        plan = next(plan for plan in program.execution_plan if plan.name == method)
        order: dict[int, int] = {}
        return [
            evolve(_step(plan, item.instr_args, order), chain=number, index=index)
            for number, chain in enumerate(plan.chains)
            for index, item in enumerate(chain.instructions)
        ]

    return opened(path, read)


def _step(plan: Any, instruction: Any, order: dict[int, int]) -> Step:
    kind = type(instruction).__name__
    if kind == "DelegateCall":
        index = instruction.delegate_index
        position = order.setdefault(index, len(order))
        return Step("delegate", str(plan.delegates[index].id), position)
    if kind == "KernelCall":
        name = operator_name(plan.operators[instruction.op_index])
        return Step("copy" if name.startswith(COPIES) else "kernel", name)
    return Step("control", kind)
