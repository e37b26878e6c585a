"""One verification at work, as a `Lowering` is one lowering."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from etdev.schema.stopwatch import Stopwatch
from etdev.verify.verification import Verification
from etdev.verify.verifier import Verifier


@define(eq=False)
class Verifying:
    """A verification; etdev/pipeline.py has the stage that fills it in.

    Args:
        verifier: Calls a written .pte and the model in eager PyTorch.
        inputs: Instead of the example inputs.
        stages: The stopwatch of the lowering.
        verification: The result.
    """

    verifier: Verifier
    inputs: Any
    stages: Stopwatch
    verification: Verification = field(init=False)
