"""Surroundings: what of this process no hook may leave changed.

torch's settings are looked at once torch is imported, since `etdev plugins` doesn't import it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from attrs import field, frozen

from etdev.errors import EtdevWarning, PluginError


@frozen(eq=False)
class Setting:
    """Something global that the caller of a lowering relies on.

    Args:
        name: What users call it.
        read: Its value, of a kind that `==` compares.
        write: Puts a value back.
        imported: A library may change it when it is imported.
        slow: Reading it takes longer than many a hook.
        long: Its values are too long for a message.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    imported: bool = False
    slow: bool = False
    long: bool = False

    def difference(self, before: Any, after: Any) -> str:
        """What changed, for a message."""
        if isinstance(before, dict):
            keys = before.keys() | after.keys()
            names = sorted(key for key in keys if before.get(key) != after.get(key))
            return f"{self.name} ({', '.join(names)})"
        return self.name if self.long else f"{self.name} from {before} to {after}"


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
        settings = (*_PROCESS, *(_of_torch() if "torch" in sys.modules else ()))
        return cls({s: s.read() for s in settings if slow or not s.slow})

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
        if setting is _ENVIRONMENT:
            warnings.warn(f"{who}: {what} changed {text}", EtdevWarning, stacklevel=4)


def _write_environment(values: Mapping[str, str]) -> None:
    for name in os.environ.keys() - values.keys():
        del os.environ[name]
    for name, value in values.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _write_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    # Python remembers which filter matched until it is told of a change.
    with warnings.catch_warnings():
        pass


def _write_path(path: list[str]) -> None:
    sys.path[:] = path


def _switch_collector(on: bool) -> None:
    if on:
        gc.enable()
    else:
        gc.disable()


def _cudnn(flag: str) -> Setting:
    """A flag of cudnn, which can be set this way where torch has frozen them, too."""
    import torch
    from torch.backends import cudnn

    def write(value: Any) -> None:
        cudnn.set_flags(**{f"_{flag}": value})  # type: ignore[no-untyped-call]

    return Setting(
        f"torch.backends.cudnn.{flag}", lambda: getattr(torch.backends.cudnn, flag), write
    )


def _attribute(name: str, place: Any, attribute: str, long: bool = False) -> Setting:
    return Setting(
        name,
        lambda: getattr(place, attribute),
        lambda value: setattr(place, attribute, value),
        long=long,
    )


_ENVIRONMENT = Setting(
    "the environment", lambda: dict(os.environ), _write_environment, imported=True, slow=True
)
_PROCESS = (
    _ENVIRONMENT,
    Setting("the working directory", os.getcwd, os.chdir),
    _attribute("sys.stdout", sys, "stdout", long=True),
    _attribute("sys.stderr", sys, "stderr", long=True),
    Setting("sys.path", lambda: list(sys.path), _write_path, imported=True, long=True),
    Setting(
        "Python's warning filters",
        lambda: list(warnings.filters),
        _write_filters,
        imported=True,
        long=True,
    ),
    Setting(
        "the handler of SIGINT",
        lambda: signal.getsignal(signal.SIGINT),
        lambda handler: signal.signal(signal.SIGINT, handler),
        long=True,
    ),
    Setting("Python's garbage collector", gc.isenabled, _switch_collector),
)


@cache
def _of_torch() -> tuple[Setting, ...]:
    import torch
    from torch.utils import deterministic

    return (
        Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Setting(
            "torch's default device",
            torch.get_default_device,
            # With "cpu" set, every op would go through a mode of torch's.
            lambda device: torch.set_default_device(None if device.type == "cpu" else device),
        ),
        Setting("torch's grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
        Setting(
            "torch's deterministic mode",
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
        ),
        _attribute("torch's filling of new memory", deterministic, "fill_uninitialized_memory"),
        Setting(
            "torch's precision of float32 products",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        Setting("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
        Setting(
            "torch's autocast",
            lambda: torch.is_autocast_enabled("cpu"),
            lambda on: torch.set_autocast_enabled("cpu", on),
        ),
        *map(_cudnn, ("enabled", "benchmark", "deterministic")),
    )
