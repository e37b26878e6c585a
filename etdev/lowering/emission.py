"""One emission of a lowering: its delegates are called, memory is planned, a .pte is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import Factory, define, field
from executorch.exir import ExecutorchBackendConfig

from etdev.lowering.lowering import Lowering
from etdev.pte.emit import Emitted
from etdev.quirks.table import Fixer
from etdev.schema.plan import Plan
from etdev.schema.stages import OwnProgram
from etdev.schema.stopwatch import Stopwatch


def _fixer(emission: Emission) -> Fixer:
    """Return rows at work that remember the fixes of the lowering, but not of other emissions."""
    known = emission.lowering.fixer
    return Fixer(known.table, {method: list(fixes) for method, fixes in known.fixes.items()})


@define(eq=False)
class Emission:
    """An emission; etdev/pipeline.py has the stages that fill it in.

    Args:
        lowering: The compiled lowering, which is not changed.
        config: ExecuTorch's settings of emission.
        with_ledger: Embed the plan in the program.
        with_record: Keep programs for ExecuTorch's Inspector.
        path: The .pte to write, or one that is written.
        who: The name of the .pte in errors.
        fixer: The rows of the quirks table at work.
        programs: The methods with the calls of delegates, by name.
        emitted: The emitted program.
    """

    lowering: Lowering
    config: ExecutorchBackendConfig | None = None
    with_ledger: bool = False
    with_record: bool = False
    path: Path = Path()
    who: str = ""
    fixer: Fixer = field(default=Factory(_fixer, takes_self=True), init=False)
    programs: Mapping[str, OwnProgram] = field(factory=dict, init=False)
    emitted: Emitted = field(init=False)

    @property
    def plan(self) -> Plan:
        """The plan of the lowering, with what the rows have changed in this emission so far."""
        return self.lowering.plan.with_fixes(self.fixer.fixes)

    @property
    def stages(self) -> Stopwatch:
        """The stopwatch of the lowering."""
        return self.lowering.stages
