"""Surroundings: this process as it was before a hook was called, to tell what the hook changed.

What belongs to them is in process_settings.py, remains.py and torch_settings.py. torch's settings
are looked at once torch is imported, since `etdev plugins` doesn't import it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from attrs import define, field

from etdev.errors import EtdevWarning, PluginError
from etdev.registry.imports import watched_imports
from etdev.registry.process_settings import process_settings
from etdev.registry.remains import modules_setting, threads_left
from etdev.registry.setting import Setting

# In place of a value: any is excused.
_ANY = object()


@define(eq=False)
class Surroundings:
    """The settings as they were at some moment, and what has changed them since.

    Args:
        values: What they were, by setting.
        told: What imports or a compiler did to the settings, as texts, by who did it.
        faults: What the hook did to them itself.
    """

    values: Mapping[Setting, Any]
    told: dict[str, list[str]] = field(factory=dict, init=False)
    faults: list[str] = field(factory=list, init=False)
    # Values after what is excused, and before that.
    _excused: dict[Setting, Any] = field(factory=dict, init=False)
    _start: dict[Setting, Any] = field(factory=dict, init=False)
    _changes: list[tuple[str, Setting, Any, Any]] = field(factory=list, init=False)

    @classmethod
    def now(cls, slow: bool = True) -> Surroundings:
        """The settings as they are.

        Args:
            slow: Also those that take long to read.
        """
        return cls({s: s.read() for s in _settings() if slow or not s.slow})

    def look(self) -> None:
        """Before something that is excused: what is different now is not its doing."""
        self._start = {s: s.read() for s in self.values if s.imported}

    def excuse(self, what: str) -> None:
        """After it: what is different now from `look` is its doing."""
        for setting, before in self._start.items():
            if (after := setting.read()) != before:
                self._changes.append((what, setting, before, after))
                # A hook may have changed it for the time of an import.
                mixed = before != self._excused.get(setting, self.values[setting])
                self._excused[setting] = _ANY if mixed else after

    def settle(self) -> None:
        """At the end: tell faults from what is excused, and put back the faults."""
        changed = set()
        for setting, before in self.values.items():
            if (after := setting.read()) == before:
                continue
            changed.add(setting)
            if self._excused.get(setting, before) not in (_ANY, after):
                self.faults.append(setting.difference(before, after))
            if setting not in self._excused:
                setting.write(before)
        for what, setting, before, after in self._changes:
            if setting in changed and not setting.is_quiet(before, after):
                text = setting.difference(before, after)
                if setting.hides:
                    setting.write(self.values[setting])
                    text += " (put back)"
                self.told.setdefault(what, []).append(text)


@contextmanager
def unchanged(who: str, what: str, slow: bool = True, compiles: bool = False) -> Iterator[None]:
    """Refuse a hook that leaves the process changed, and put back what it changed.

    What a module changes while it is imported, such as the environment, is left, since a later
    lowering would find it so, too; a warning names hook, module and change. Nothing is said of
    warning filters for some text or module, nor of paths and logging handlers added at the end.

    Args:
        who: The plugin.
        what: Which of its hooks, and for which method.
        slow: Also look at what takes long to read.
        compiles: A backend's compiler is called, with the same excuse as an import.

    Raises:
        PluginError: The hook changed something. If it raised, too, that is what counts.
    """
    around = Surroundings.now(slow)
    around.look()
    threads: list[str] = []
    try:
        watched = nullcontext() if compiles else _imports_told(around)
        with threads_left(threads) if slow else nullcontext(), watched:
            yield
    except BaseException:
        around.settle()
        raise
    if compiles:
        around.excuse("")
    around.settle()
    if around.faults:
        cure = "put it back before the hook returns, as with a context manager"
        raise PluginError(who, f"{what} changed {' and '.join(around.faults)}", cure)
    for source, changes in around.told.items():
        text = f"{who}: {what} changed {' and '.join(changes)} {source}".rstrip()
        cure = "put it back where the compile_context ends" if compiles else "import it beforehand"
        warnings.warn(f"{text}; {cure} if others need it as it was", EtdevWarning, stacklevel=4)
    if threads:
        text = f"{what} left threads running that Python waits for at its end: {', '.join(threads)}"
        cure = "join them before the hook returns, or make them daemons"
        warnings.warn(f"{who}: {text}; {cure}", EtdevWarning, stacklevel=4)


def _imports_told(around: Surroundings) -> AbstractContextManager[None]:
    return watched_imports(around.look, lambda name: around.excuse(f"as {name} was imported"))


def _settings() -> tuple[Setting, ...]:
    settings = (*process_settings(), modules_setting())
    if "torch" not in sys.modules:
        return settings
    from etdev.registry.torch_settings import torch_settings

    # Those of the process first: they import nothing.
    return (*settings, *torch_settings())
