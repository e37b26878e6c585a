"""The registry: which plugins there are, which of them are asked in which order, and how.

`etdev plugins` never imports torch, so nothing that is imported here may. What touches programs
(`adapted`, `shadow`, `tags`) is imported by function, at the call that needs it.
"""

from etdev.registry.registry import PluginEntry, Registry, default_path, find, load, parse

__all__ = ["PluginEntry", "Registry", "default_path", "find", "load", "parse"]
