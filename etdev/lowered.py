"""The result of a lowering: compiled partitions, to be emitted, audited, written and verified."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import define, field
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager

from etdev.delegate.split import Weights
from etdev.errors import ArtifactError, LoweringError, shown, warn_or_raise
from etdev.files import check_writable, publish, scratch, unseen
from etdev.lowering.emission import Emission
from etdev.lowering.lowering import Lowering
from etdev.pipeline import EMITTING, VERIFYING, WRITING, run
from etdev.pte.read import methods_of
from etdev.runtime import libraries
from etdev.runtime.child import CHILD
from etdev.runtime.kernels import warn_of_missing
from etdev.schema.outcomes import Outcome
from etdev.schema.plan import Plan
from etdev.schema.stopwatch import Stopwatch
from etdev.schema.target import Target, target_of
from etdev.upstream.shortcuts.leftovers import forgotten_code
from etdev.upstream.tracing import exclusive_tracing
from etdev.verify.verification import Verification
from etdev.verify.verifier import STEPS, Verifier
from etdev.verify.verifying import Verifying


@define(eq=False, slots=False, repr=False)
class Lowered:
    """A program whose partitions are compiled.

    Args:
        lowering: What the stages up to `compile` made.
    """

    lowering: Lowering = field(repr=False)
    # The weights that the .pte takes from the model itself.
    _weights: Weights = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._weights = Weights(self.lowering.programs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.plan.summary}>"

    def _repr_html_(self) -> str | None:
        return self.plan._repr_html_()

    def __rich__(self) -> Any:
        return self.plan.__rich__()

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.lowering.plan

    @property
    def stages(self) -> Stopwatch:
        """Time of each stage so far."""
        return self.lowering.stages

    @cached_property
    def edge(self) -> EdgeProgramManager:
        """ExecuTorch's own manager of the delegated programs; go on from there if you like.

        Calling `to_executorch` on this manager consumes it; `Lowered.to_executorch` can be called
        again, and plans memory for state that methods share.
        """
        if shared := [str(state) for state in self.plan.state if state.shared]:
            names = ", ".join(shared)
            what = f"methods share state, {names}, which its to_executorch gives to each"
            cure = "call Lowered.to_executorch instead, or lower with share_state=False"
            warn_or_raise(LoweringError("Lowered.edge", what, cure), False)
        with exclusive_tracing():
            emission = Emission(self.lowering)
            run(EMITTING[:1], emission)
            return self.lowering.manager(emission.programs)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcome of each partition's compilation."""
        return tuple(self.lowering.compiler.outcomes)

    @property
    def strict(self) -> bool:
        """True if a program is refused for which this machine's runtime has no kernel."""
        return self.lowering.composition.options.strict

    def to_executorch(
        self, config: ExecutorchBackendConfig | None = None, *, with_ledger: bool = False
    ) -> ExecutorchProgramManager:
        """Plan memory and emit the program, as ExecuTorch's manager does.

        The result is compared with the plan. Its `get_etrecord()` has the programs as exported and
        before delegation, for ExecuTorch's Inspector and for Model Explorer.

        Args:
            config: ExecuTorch's settings of emission.
            with_ledger: Embed the plan in the program, for `etdev explain`.

        Raises:
            LoweringError: ExecuTorch refused it, or the model's weights were changed meanwhile.
            DeviceError: The config doesn't fit the devices of the plan.
            AuditError: The result differs from the plan.
            BudgetError: It needs more bytes of libraries than the budget allows.
        """
        emission = Emission(self.lowering, config, with_ledger, with_record=True)
        return self._emitted(emission).emitted.program

    def save(
        self,
        path: str | os.PathLike[str],
        config: ExecutorchBackendConfig | None = None,
        *,
        with_ledger: bool = False,
        verify: bool = False,
    ) -> Path:
        """Emit and write a .pte, and a .ptd beside it for data that is kept outside.

        The file is read back and compared with the plan before it appears, whole or not at all.

        Args:
            path: The .pte.
            config: As for `to_executorch`.
            with_ledger: As for `to_executorch`.
            verify: Write it only if `verify(strict=True)` raises no error.

        Raises:
            ArtifactError: The file can't be written.
            EtdevError: As `to_executorch` and `verify`.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise ArtifactError("path", f"is {shown(path)}", "name it model.pte")
        check_writable(path := Path(path), ".pte")
        if verify:
            CHILD.start()
        emission = self._emitted(Emission(self.lowering, config, with_ledger, who=str(path)))
        with unseen(path) as folder:
            emission.path = folder / path.name
            run(WRITING, emission)
            if verify:
                self.verify(path=emission.path, strict=True)
            publish((*folder.glob("*.ptd"), emission.path), path)
        return path

    def verify(  # noqa: PLR0913 (public)
        self,
        inputs: Any = None,
        *,
        steps: int = STEPS,
        edges: bool = False,
        tolerance: float | None = None,
        strict: bool | None = None,
        path: str | os.PathLike[str] | None = None,
        config: ExecutorchBackendConfig | None = None,
        runner: str | None = None,
        target: str | Target | None = None,
    ) -> Verification:
        """Run the .pte in ExecuTorch's runtime and compare it with eager PyTorch.

        It runs in a process of its own, so that a crash is a result, too. The first call has the
        example inputs, later ones fresh values, with dynamic sizes at their bounds and between, and
        values far from the example; state goes from call to call. Outputs and inputs after each
        call are compared. Neither the model nor its state changes.

        Args:
            inputs: Instead of the example inputs: the arguments of a call as a tuple, or a list of
                such tuples for the first calls; by method in a dict if there are several.
            steps: Calls of each method with different inputs; those in other sizes are repeated.
            edges: Raise if a call at NaN, infinities, the edge values of each dtype or a size of 0
                differs; by default the first ones and the size are tried, and reported apart.
            tolerance: Largest error relative to the largest value of an output; by default what
                etdev/verify/tolerance.py says for the dtypes and backends.
            strict: Raise if something can't be verified here, such as a delegate whose backend this
                runtime lacks; None takes it from the lowering.
            path: A .pte that `save` wrote; None emits one for the time being.
            config: For emitting it, as for `save`.
            runner: `python`, or an installed runner such as `cpp`; None takes the one that a plugin
                names for its delegates, else Python and each installed runner that verifies, too.
            target: Where it runs: a name of the registry's, or an `etdev.schema.target.Target`;
                None for this machine.

        Returns:
            The number of calls that agree, what they tried, and the parts that were not verified.

        Raises:
            VerifyError: A call differs or fails. Names output, step, and the delegate or kernel.
            EtdevError: As `save`.
        """
        if isinstance(target, str):
            target = target_of(target, self.lowering.composition.options.targets)
        CHILD.start()
        with nullcontext("") if path else scratch() as folder:
            saved = Path(path) if path else self.save(Path(folder) / "program.pte", config)
            verifier = Verifier(
                saved,
                self.lowering.references,
                steps=steps,
                edges=edges,
                tolerance=tolerance,
                decided=self.lowering,
                listener=self.stages.listener,
                plugins=self.lowering.composition.plugins,
                runner=runner,
                target=target,
            )
            work = Verifying(verifier, inputs, self.stages)
            run(VERIFYING, work)
        if self.strict if strict is None else strict:
            work.verification.require("leave out strict, or --verify, to accept that")
        return work.verification

    def _emitted(self, emission: Emission) -> Emission:
        """Emit a program, and check it against this machine's kernels and the budget."""
        options = self.lowering.composition.options
        with exclusive_tracing(), forgotten_code():
            self._weights.refuse_changes()
            run(EMITTING, emission)
            self.lowering.plan = emission.plan
            methods = methods_of(emission.emitted.program.executorch_program)
            warn_of_missing(methods, options.strict)
            if options.budget and options.budget.runtime_bytes is not None:
                libraries.counter()(methods, options.budget.runtime_bytes)
        return emission
