"""The names of a new plugin, all made from one."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from attrs import frozen
from packaging.utils import InvalidName, canonicalize_name

from etdev.errors import PluginError
from etdev.registry.plugin import RESERVED_NAMES
from etdev.registry.registry import own_distributions

PREFIX = "etdev-"
# File systems have a limit on names, and these get suffixes.
_LONGEST = 100
_BACKEND = re.compile(r"^class (\w+)\((?:\w+, )*BackendDetails\b", re.MULTILINE)


@frozen
class Names:
    """The names of a plugin.

    Args:
        plugin: Its entry point, `my-npu`; normalised as PEP 503 says.
    """

    plugin: str

    @classmethod
    def parse(cls, text: str) -> Names:
        """Return the names of a plugin; `etdev-npu` is the distribution of `npu`."""
        try:
            name: str = canonicalize_name(text, validate=True)
        except InvalidName:
            cure = "use letters, digits, -, _ and ., with a letter or a digit at both ends"
            raise PluginError("new", f"{text!r} is not a name that PEP 503 allows", cure) from None
        name = name.removeprefix(PREFIX)
        if len(name) > _LONGEST:
            raise PluginError("new", f"the name has {len(name)} letters", "choose a shorter one")
        if name in RESERVED_NAMES:
            raise PluginError(name, RESERVED_NAMES[name], "choose another name")
        own = {**own_distributions(), "etdev": "etdev"}
        if name in own:
            what = f"is the name of etdev's own {own[name]}"
            raise PluginError(name, what, "choose another name")
        return cls(name)

    @property
    def distribution(self) -> str:
        """Its distribution: `etdev-my-npu`."""
        return f"{PREFIX}{self.plugin}"

    @property
    def package(self) -> str:
        """Its package: `etdev_my_npu`."""
        return self.distribution.replace("-", "_")

    @property
    def stem(self) -> str:
        """The prefix of its classes: `MyNpu`."""
        stem = "".join(part.capitalize() for part in self.plugin.split("-"))
        return stem if stem[0].isalpha() else f"Etdev{stem}"

    @property
    def backend(self) -> str:
        """Its ExecuTorch backend: `MyNpuBackend`."""
        return f"{self.stem}Backend"

    def check_backend(self) -> None:
        """Refuse a backend that ExecuTorch would find twice, since it finds them by class name."""
        taken = {name.lower(): name for name in _backends()}
        if known := taken.get(self.backend.lower()):
            what = f"ExecuTorch has a backend {known} already"
            cure = f"choose another name, or write a plugin for it: etdev new plugin {self.plugin}"
            raise PluginError(self.plugin, what, cure)


def _backends() -> set[str]:
    """Return the names of the backends in ExecuTorch's wheel, without an import."""
    spec = find_spec("executorch")
    places = (spec.submodule_search_locations if spec else None) or ()
    files = [file for place in places for file in Path(place, "backends").rglob("*.py")]
    texts = (file.read_text("utf-8", errors="ignore") for file in files)
    return {name for text in texts for name in _BACKEND.findall(text)}
