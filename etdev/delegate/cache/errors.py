"""Why something can't have a key."""

from __future__ import annotations


class Unhashable(Exception):
    """A value that the compiled bytes may depend on has no faithful digest; the text says which."""
