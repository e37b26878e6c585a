"""Runners that measure: on this machine, and on the targets of a registry."""

from etdev_tune.runners.local import Local
from etdev_tune.runners.remote import OnTarget, open_runner

__all__ = ["Local", "OnTarget", "open_runner"]
