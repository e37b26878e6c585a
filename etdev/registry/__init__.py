"""The registry: which plugins there are, who is asked in which order, and how. No torch here."""

from etdev.registry.registry import PluginEntry, Registry, default_path, find, load, parse

__all__ = ["PluginEntry", "Registry", "default_path", "find", "load", "parse"]
