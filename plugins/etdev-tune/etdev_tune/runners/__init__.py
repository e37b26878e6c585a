"""Runners: this machine, and targets behind ssh, adb or any command."""

from etdev_tune.runners.target import Local, open_runner

__all__ = ["Local", "open_runner"]
