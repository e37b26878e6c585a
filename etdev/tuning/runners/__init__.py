"""Runners: this machine, and targets behind ssh, adb or any command."""

from etdev.tuning.runners.choice import open_runner
from etdev.tuning.runners.local import Local

__all__ = ["Local", "open_runner"]
