"""The registry of plugins: found, made with their options, put in order, and asked hook by hook.

`etdev plugins` never imports torch, so nothing that is imported here may. Modules that touch
programs (`adapted`, `keep_whole`, `masked`, `tags`) are imported where programs are.
"""

from etdev.registry.registry import PluginEntry, Registry, default_path, find, load, parse

__all__ = ["PluginEntry", "Registry", "default_path", "find", "load", "parse"]
