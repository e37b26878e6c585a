"""Settings of this process: of Python, of its libraries and of the system.

Left out is what a hook may add (see remains.py), random numbers (a lowering puts them back), and
the functions of a debugger.
"""

from __future__ import annotations

import decimal
import gc
import locale
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from etdev.registry.posix_settings import posix_settings
from etdev.registry.setting import Setting, attribute


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


def _adds_filters(before: list[Any], after: list[Any]) -> bool:
    """Whether filters were only added, and each is for some text or for some module."""
    added = [one for one in after if one not in before]
    return [one for one in after if one in before] == before and all(
        message or module for _, message, _, module, _ in added
    )


def _appends(before: list[Any], after: list[Any]) -> bool:
    """Whether items were only added at the end, so that the earlier ones keep their precedence."""
    return after[: len(before)] == before


def _adds_handlers(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Whether handlers were added and all else is as it was, as after `logging.basicConfig()`."""
    return after[:2] == before[:2] and _appends(before[2], after[2])


def _list(name: str, place: Any, attribute: str, **kind: Any) -> Setting:
    """A list that others may hold, so that its items are put back and not another list."""

    def write(items: list[Any]) -> None:
        getattr(place, attribute)[:] = items

    return Setting(name, lambda: list(getattr(place, attribute)), write, long=True, **kind)


def _switch_collector(on: bool) -> None:
    if on:
        gc.enable()
    else:
        gc.disable()


def _umask() -> str:
    # It can't be read but by setting it: for a moment no file can get more permissions.
    mask = os.umask(0o777)
    os.umask(mask)
    return f"{mask:03o}"


def _working_directory() -> str:
    try:
        return os.getcwd()
    # It may have been deleted.
    except OSError:
        return ""


def _change_directory(path: str) -> None:
    with suppress(OSError):
        os.chdir(path)


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    # There is no place where a file can be written.
    except OSError:
        return ""


# What a process may be told; to ask for all that there are takes long.
_NAMES = (
    "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGUSR1", "SIGUSR2",
    "SIGWINCH", "SIGTSTP", "SIGCONT",
)  # fmt: skip
_SIGNALS = tuple(name for name in _NAMES if hasattr(signal, name))


def _handlers() -> dict[str, Any]:
    """The handlers of signals, which only the main thread can set."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {name: signal.getsignal(getattr(signal, name)) for name in _SIGNALS}
    # Those that are not Python's can't be put back.
    return {name: handler for name, handler in handlers.items() if handler is not None}


def _write_handlers(handlers: Mapping[str, Any]) -> None:
    for name, handler in handlers.items():
        number = signal.Signals[name]
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _write_logging(state: tuple[int, int, list[logging.Handler]]) -> None:
    root = logging.getLogger()
    root.setLevel(state[0])
    logging.disable(state[1])
    root.handlers[:] = state[2]


def _logging() -> tuple[int, int, list[logging.Handler]]:
    root = logging.getLogger()
    return root.level, root.manager.disable, list(root.handlers)


@cache
def process_settings() -> tuple[Setting, ...]:
    """All of them, in the order in which they are put back."""
    hook: dict[str, Any] = {"long": True, "slow": True, "imported": True}
    return (
        Setting(
            "the environment",
            lambda: dict(os.environ),
            _write_environment,
            imported=True,
            slow=True,
        ),
        Setting("the working directory", _working_directory, _change_directory),
        attribute("sys.stdout", sys, "stdout", long=True),
        attribute("sys.stderr", sys, "stderr", long=True),
        attribute("sys.stdin", sys, "stdin", long=True, slow=True),
        _list("sys.path", sys, "path", imported=True, is_quiet=_appends),
        _list("sys.meta_path", sys, "meta_path", imported=True, slow=True, is_quiet=_appends),
        _list("sys.argv", sys, "argv", slow=True),
        Setting(
            "Python's warning filters",
            lambda: list(warnings.filters),
            _write_filters,
            imported=True,
            long=True,
            is_quiet=_adds_filters,
            hides=True,
        ),
        attribute("warnings.showwarning", warnings, "showwarning", **hook),
        attribute("sys.excepthook", sys, "excepthook", **hook),
        attribute("sys.unraisablehook", sys, "unraisablehook", **hook),
        attribute("threading.excepthook", threading, "excepthook", **hook),
        attribute("sys.displayhook", sys, "displayhook", **hook),
        Setting("logging's root logger", _logging, _write_logging, is_quiet=_adds_handlers, **hook),
        Setting(
            "the handler of SIGINT",
            lambda: signal.getsignal(signal.SIGINT),
            lambda handler: signal.signal(signal.SIGINT, handler),
            long=True,
            slow=True,
        ),
        Setting("the handlers of signals", _handlers, _write_handlers, imported=True, slow=True),
        Setting("Python's garbage collector", gc.isenabled, _switch_collector),
        Setting(
            "the thresholds of Python's garbage collector",
            gc.get_threshold,
            lambda thresholds: gc.set_threshold(*thresholds),
            slow=True,
        ),
        Setting(
            "Python's recursion limit",
            sys.getrecursionlimit,
            sys.setrecursionlimit,
            imported=True,
            slow=True,
        ),
        Setting(
            "Python's limit of digits",
            # The first releases of Python 3.10 have none.
            getattr(sys, "get_int_max_str_digits", int),
            getattr(sys, "set_int_max_str_digits", int),
            imported=True,
            slow=True,
        ),
        Setting(
            "Python's switch interval", sys.getswitchinterval, sys.setswitchinterval, slow=True
        ),
        Setting(
            "the precision of decimals",
            lambda: decimal.getcontext().prec,
            lambda precision: setattr(decimal.getcontext(), "prec", precision),
            slow=True,
        ),
        Setting("the umask", _umask, lambda mask: os.umask(int(mask, 8)), slow=True),
        Setting(
            "the locale",
            lambda: locale.setlocale(locale.LC_ALL),
            lambda name: locale.setlocale(locale.LC_ALL, name),
            imported=True,
            slow=True,
        ),
        Setting(
            "the time limit of sockets",
            socket.getdefaulttimeout,
            socket.setdefaulttimeout,
            slow=True,
        ),
        Setting(
            "the folder of temporary files",
            _temporary_folder,
            lambda folder: setattr(tempfile, "tempdir", folder or None),
            slow=True,
        ),
        *posix_settings(),
    )
