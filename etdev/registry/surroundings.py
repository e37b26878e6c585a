"""Surroundings: this process as it was before a hook was called, to tell what the hook changed.

What belongs to them is in process_settings.py and torch_settings.py. torch's settings are looked at
once torch is imported, since `etdev plugins` doesn't import it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import field, frozen

from etdev.errors import EtdevWarning, PluginError
from etdev.registry.process_settings import ENVIRONMENT, process_settings
from etdev.registry.setting import Setting


@frozen(eq=False)
class Surroundings:
    """The settings as they were at some moment.

    Args:
        values: By setting.
        modules: How many modules were imported.
    """

    values: Mapping[Setting, Any]
    modules: int = field(factory=lambda: len(sys.modules))

    @classmethod
    def now(cls, slow: bool = True) -> Surroundings:
        """The settings as they are.

        Args:
            slow: Also those that take long to read.
        """
        return cls({s: s.read() for s in _settings() if slow or not s.slow})

    def excuses(self, compiles: bool) -> bool:
        """Whether a library may have changed what imports may change."""
        return compiles or len(sys.modules) > self.modules

    def restore(self, excused: bool) -> Iterator[tuple[Setting, str]]:
        """Put back what is different now; yields each such setting and what changed.

        Args:
            excused: What imports may change is left as it is.
        """
        for setting, before in self.values.items():
            after = setting.read()
            if after == before:
                continue
            if not (excused and setting.imported):
                setting.write(before)
            yield setting, setting.difference(before, after)


@contextmanager
def unchanged(who: str, what: str, slow: bool = True, compiles: bool = False) -> Iterator[None]:
    """Refuse a hook that leaves the process changed, and put back what it changed.

    Imports of libraries may add to the environment, to `sys.path` and to Python's warning filters.
    What is added to the environment then is left there with a warning, as nothing tells whether
    the library did it or the plugin.

    Args:
        who: The plugin.
        what: Which of its hooks, and for which method.
        slow: Also look at what takes long to read.
        compiles: A backend's compiler is called, with the same excuse as the import of a library.

    Raises:
        PluginError: The hook changed something. If it raised, too, that is what counts.
    """
    before = Surroundings.now(slow)
    try:
        yield
    except BaseException:
        list(before.restore(before.excuses(compiles)))
        raise
    excused = before.excuses(compiles)
    changes = list(before.restore(excused))
    faults = [text for setting, text in changes if not (excused and setting.imported)]
    if faults:
        cure = "put it back before the hook returns, as with a context manager"
        raise PluginError(who, f"{what} changed {' and '.join(faults)}", cure)
    for setting, text in changes:
        if setting is ENVIRONMENT:
            warnings.warn(f"{who}: {what} changed {text}", EtdevWarning, stacklevel=4)


def _settings() -> tuple[Setting, ...]:
    if "torch" not in sys.modules:
        return process_settings()
    from etdev.registry.torch_settings import torch_settings

    # Those of the process first: they import nothing.
    return (*process_settings(), *torch_settings())
