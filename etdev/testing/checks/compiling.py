"""Checks of compiling: true devices, and failures that are reported."""

from __future__ import annotations

from unittest.mock import patch

from etdev.delegate.compiler_calls import Call
from etdev.errors import CompileError
from etdev.registry import answers
from etdev.testing.contract import contract
from etdev.testing.programs import Layer
from etdev.testing.subject import Subject, delegates


@contract(
    "its partitions are on devices that its claims name, and its payloads say the same",
    "a label that is not true lets a .pte load on a machine that it does not run on",
)
def devices(subject: Subject) -> None:
    for program, plan in subject.claimed(Layer):
        subject.compiling()
        lowerer = subject.lowerer()
        modules = delegates(lowerer.lower(program))
        for module, partition in zip(modules, plan.partitions, strict=True):
            payload, own = bytes(module.processed_bytes), partition.device
            device = answers.payload_device(lowerer.plugins, module.backend_id, payload)
            if device is None:
                subject.gaps.append("it does not say the device of its payloads")
            else:
                assert device == own, f"planned on {own}, the payload is for {device}"
                subject.looked = True


@contract(
    "a failed compile raises its error, and the next one works",
    "a delegate with the bytes of another one computes wrong values silently",
)
def failures(subject: Subject) -> None:
    told = CompileError(subject.name, "the compiler failed")
    for program, _ in subject.claimed(Layer):
        subject.compiling()
        lowerer = subject.lowerer()
        with patch.object(Call, "compile", side_effect=told):
            try:
                lowerer.lower(program)
                raised = "nothing"
            except Exception as error:
                raised = str(error)
        assert told.what in raised, f"its compiler raised {told.what!r}, the lowering {raised!r}"
        assert delegates(lowerer.lower(program)), "nothing was compiled"
        subject.looked = True
