"""What a lowering gives: compiled partitions, to be emitted, audited and written."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from attrs import define, field
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager

from etdev.pte.emit import Emitted, emit
from etdev.pte.read import read
from etdev.pte.write import write_program
from etdev.schema.plan import Plan
from etdev.stages import Stages, guarded


@define(eq=False, slots=False)
class Lowered:
    """A program whose partitions are compiled.

    Args:
        plan: What was decided.
        stages: Time of each stage so far.
    """

    plan: Plan
    _build: Callable[[], EdgeProgramManager] = field(repr=False)
    stages: Stages = field(repr=False)

    @cached_property
    def edge(self) -> EdgeProgramManager:
        """ExecuTorch's own manager of the delegated programs; go on from there if you like.

        Calling `to_executorch` on this manager consumes it; `Lowered.to_executorch` can be called
        again.
        """
        return self._build()

    def to_executorch(
        self, config: ExecutorchBackendConfig | None = None
    ) -> ExecutorchProgramManager:
        """Plan memory and emit the program, as ExecuTorch's manager does.

        What comes out is compared with the plan.

        Raises:
            LoweringError: ExecuTorch refused it.
            DeviceError: The config can't be honoured with the devices of the plan.
            AuditError: It is not what was planned.
        """
        return self._emit(config).program

    def save(
        self, path: str | os.PathLike[str], config: ExecutorchBackendConfig | None = None
    ) -> Path:
        """Emit and write a .pte, and a .ptd beside it for data that is kept outside.

        The file is read back and compared with the plan before it appears, whole or not at all.

        Raises:
            ArtifactError: The file can't be written.
            EtdevError: As `to_executorch`.
        """
        emitted = self._emit(config)

        def check(written: Path) -> None:
            with self.stages.stage("audit"):
                emitted.audit(self.plan, read(written).methods, str(path))

        with self.stages.stage("write"):
            return write_program(emitted.program, Path(path), check)

    def _emit(self, config: ExecutorchBackendConfig | None) -> Emitted:
        with self.stages.stage("emit"):
            return guarded("to_executorch", lambda: emit(self._build(), self.plan, config))  # type: ignore[no-any-return]
