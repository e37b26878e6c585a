"""The public fakes, under the names that the tests know them by."""

from attrs import define

from etdev import Device, hookimpl
from etdev.testing import fakes
from etdev.testing.fakes import FakeAccelerator

__all__ = ["Accelerator", "FakeAccelerator"]


@define(eq=False)
class Accelerator(fakes.Accelerator):
    """The plugin for the fake accelerator, on a device."""

    device: Device | None = None

    @hookimpl
    def resolve_device(self):
        return self.device
