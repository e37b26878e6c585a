"""Checks of compiling: true devices, and failures that are reported."""

from __future__ import annotations

from typing import Any

from executorch.exir.lowered_backend_module import get_lowered_submodules

from etdev.errors import PluginError
from etdev.registry import answers
from etdev.schema.device import Device
from etdev.testing.contract import contract
from etdev.testing.programs import Layer, exported
from etdev.testing.subject import Skipped, Subject


@contract(
    "its partitions are on devices that its claims name, and its payloads say the same",
    "a label that is not true lets a .pte load on a machine that it does not run on",
)
def devices(subject: Subject) -> None:
    lowerer = subject.lowerer()
    plan = lowerer.plan(exported(Layer))
    if not plan.partitions:
        raise Skipped("it claims nothing of the program")
    subject.compiling()
    program = lowerer.lower(exported(Layer)).edge.exported_program()
    owners = {partition.backend_id: partition for partition in plan.partitions}
    for _, module, _ in get_lowered_submodules(program.graph_module):
        payload, own = bytes(module.processed_bytes), owners[module.backend_id].device
        device = answers.payload_device(lowerer.plugins, module.backend_id, payload)
        if device is not None:
            assert isinstance(device, Device)
            assert device == own, f"planned on {own}, the payload is for {device}"


@contract(
    "a failed compile raises its error, and the next one works",
    "a delegate with the bytes of another one computes wrong values silently",
)
def failures(subject: Subject) -> None:
    lowerer = subject.lowerer()
    plugin, *_ = lowerer.plugins
    own = [p.device for p in lowerer.plan(exported(Layer)).partitions]
    if not own or subject.unfit():
        raise Skipped("it can't compile here")
    _fails(plugin, own[0])
    lowerer.lower(exported(Layer))


def _fails(plugin: Any, device: Device) -> None:
    told = RuntimeError("the compiler failed")
    try:
        with answers.compile_context(plugin, device):
            raise told
    except Exception as error:
        if error is not told:
            what = error.what if isinstance(error, PluginError) else f"it raised {error!r} instead"
            raise AssertionError(what) from error
