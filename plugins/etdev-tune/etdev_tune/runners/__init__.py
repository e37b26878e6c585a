"""Runners: this machine, and targets behind ssh, adb or any command."""

from etdev_tune.runners.choice import open_runner
from etdev_tune.runners.local import Local

__all__ = ["Local", "open_runner"]
