"""The switch of shortcuts; importing this file does not import torch."""

from __future__ import annotations

import logging
import os
import pkgutil
from functools import cached_property

from attrs import define

# Set in the environment, it takes torch's and ExecuTorch's own way everywhere.
PLAIN = "ETDEV_PLAIN"
_log = logging.getLogger(__name__)


@define(eq=False)
class Shortcut:
    """Code that is left out where it can't be used, or by the user's wish.

    Args:
        name: What it is, for the log.
        needs: Dotted names of torch and ExecuTorch; it is off on a version without one of them.
    """

    name: str
    needs: tuple[str, ...] = ()

    @property
    def is_on(self) -> bool:
        """True if the shortcut is taken."""
        return not os.environ.get(PLAIN) and not self.missing

    @cached_property
    def missing(self) -> str:
        """The first name that torch or ExecuTorch lacks; empty if it has all of them."""
        for name in self.needs:
            try:
                pkgutil.resolve_name(name)
            except (ImportError, AttributeError):
                _log.debug("%s: off, since there is no %s", self.name, name)
                return name
        return ""
