"""Placement: what a plugin and a user may say of devices, and how it reads.

Who wins, and what is copied because of it, is in cases/devices.txt.
"""

import pytest
from attrs import define
from support.models.small import PAIR, AddMul
from support.toys.accelerator import Accelerator

from etdev import Lowerer, hookimpl
from etdev.errors import DeviceError, PluginError
from etdev.schema.device import CPU, Device
from etdev.schema.partition import Assumed


@define(eq=False)
class Says(Accelerator):
    """Gives any answer."""

    name: str = "trt"
    answer: object = None
    caveat: object = None

    @hookimpl
    def resolve_device(self):
        return self.answer

    @hookimpl
    def device_caveat(self):
        return self.caveat


def refused(plugin, error=PluginError, **options):
    with pytest.raises(error) as caught:
        Lowerer([plugin], **options).plan(AddMul(), PAIR)
    return str(caught.value)


@pytest.mark.parametrize("arguments", [("cuda:0", "why"), (Device("cuda"), None)])
def test_an_assumed_device_is_a_device_with_a_reason(arguments):
    with pytest.raises(TypeError):
        Assumed(*arguments)


@pytest.mark.parametrize(
    ("given", "device"),
    [
        (None, CPU),
        ({}, CPU),
        ({"trt": "cuda:1"}, Device("cuda", 1)),
        ({"trt": Device("cuda", 1)}, Device("cuda", 1)),
        ({"trt": {"forward": "cuda", "*": CPU}}, Device("cuda", 0)),
    ],
)
def test_pins_are_given_per_plugin_or_per_method(given, device):
    (partition,) = Lowerer([Says()], devices=given).plan(AddMul(), PAIR).partitions
    assert partition.device == device


@pytest.mark.parametrize("pinned", ["gpu", {"forward": "gpu"}])
def test_a_bad_pin_is_named_with_its_plugin(pinned):
    assert refused(Says(), DeviceError, devices={"trt": pinned}) == (
        "devices['trt']: unknown type 'gpu'; "
        "valid are cpu, cuda:0 to cuda:127, and kinds of plugins' own, as npu:0"
    )
