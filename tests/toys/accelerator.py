"""The public fakes, under the name that the tests know them by."""

from etdev.testing.fakes import Accelerator, FakeAccelerator

__all__ = ["Accelerator", "FakeAccelerator"]
