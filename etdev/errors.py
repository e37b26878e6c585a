"""The errors that etdev raises, as one tree below `EtdevError`.

A text reads *who: what is wrong; what to do*, and the three parts are attributes too.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = [  # noqa: RUF022
    "EtdevError", "EtdevWarning", "PluginError", "ApiError", "ClaimError", "DeviceError",
    "PinError", "RegistryError", "BudgetError", "SourceError", "LoweringError", "CompileError",
    "MethodError", "CacheError", "LockError", "ArtifactError", "AuditError", "RunError",
    "VerifyError", "TuneError",
]  # fmt: skip


class EtdevError(Exception):
    """Base of every error etdev raises on purpose.

    Args:
        who: The plugin, file or stage at fault.
        what: What is wrong, with the offending value.
        cure: What to do about it.
    """

    def __init__(self, who: str, what: str, cure: str = "") -> None:
        # All three go to args: an exception that hides them can't be pickled to another process.
        super().__init__(who, what, cure)
        self.who = who
        self.what = what
        self.cure = cure

    def __str__(self) -> str:
        text = f"{self.who}: {self.what}" if self.who else self.what
        return f"{text}; {self.cure}" if self.cure else text


class DeviceError(EtdevError):
    """A device that does not exist or cannot be written into a .pte."""


class RegistryError(EtdevError):
    """registry.toml can't be read, or says something impossible."""


class PluginError(EtdevError):
    """A plugin is missing, broken, or answered wrongly."""


class ApiError(PluginError):
    """A plugin was built for other hooks than this etdev has."""


class ClaimError(PluginError):
    """A claim that can't be kept."""


class PinError(PluginError):
    """A pin that can't be read, or that its plugin doesn't keep."""


class BudgetError(EtdevError):
    """More falls back to portable kernels than the budget allows, or a budget makes no sense."""


class SourceError(EtdevError):
    """The model given to etdev can't be loaded or exported."""


class LoweringError(EtdevError):
    """ExecuTorch refused the program at a named stage."""


class CompileError(LoweringError):
    """A backend failed on one partition."""


class MethodError(EtdevError, KeyError):
    """A method that a plan doesn't have."""


class CacheError(EtdevError):
    """An entry of the compile cache, or the cache itself, can't be used."""


class LockError(EtdevError):
    """A lock can't be read, or is of something else than what would be made."""


class ArtifactError(EtdevError):
    """A .pte can't be read or written."""


class AuditError(ArtifactError):
    """A .pte is not what was planned."""


class RunError(EtdevError):
    """A .pte can't be loaded or executed."""


class VerifyError(RunError):
    """A .pte doesn't compute what eager PyTorch computes, or can't be shown to."""


class TuneError(EtdevError):
    """A model can't be tuned: no inputs exercise it, or no candidate will do."""


class EtdevWarning(UserWarning):
    """Something etdev had to assume, or a model that is probably not what was meant."""


def warn_or_raise(error: EtdevError, strict: bool) -> None:
    """Raise an error under `strict`; else give a warning with its text."""
    if strict:
        raise error
    warnings.warn(str(error), EtdevWarning, stacklevel=3)


# The cure of an error about one that a plugin or ExecuTorch raised.
CHAINED = "the cause is chained below"
# The `who` of an error about parts that were not verified.
NOT_VERIFIED = "not verified"


def first_line(error: BaseException) -> str:
    """Return an error in one line, for a table or a sentence: `KeyError: 'aten.add'`.

    The line includes the lines under a heading such as `missing kernels:`, and the cause of a
    failed ExecuTorch pass.
    """
    # attrs' validators put their own innards into args, after the sentence.
    validator = type(error) in (TypeError, ValueError) and len(error.args) > 1
    try:
        head = _announced(str(error.args[0] if validator else error))
    # Its `__str__` may fail.
    except Exception:
        head = ""
    name = type(error).__name__
    line = f"{name}: {head}" if head else name
    cause = error.__cause__
    return f"{line} ({first_line(cause)})" if cause and _FAILED_PASS in head else line


# ExecuTorch's pass manager begins so, and chains the error of the pass.
_FAILED_PASS = "An error occurred when running the"
_MOST = 400


def shown(value: object) -> str:
    """Return the text of any value for a sentence, shortened; also if its `repr` fails."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= _MOST else f"{text[:_MOST]} ..."


def close_to(name: str, known: Iterable[str]) -> str:
    """Return `did you mean cpu?` for a name that is nearly known, else an empty text."""
    close = difflib.get_close_matches(name, [other for other in known if other != name], 1)
    return f"did you mean {close[0]}?" if close else ""


def install_hint(distribution: str, extra: str = "") -> str:
    """Say how one of etdev's own distributions is installed from where etdev itself came from.

    No package index has them, so pip needs an address or a folder beside the name.

    Args:
        distribution: Its name, such as etdev-tune.
        extra: One of its extras.
    """
    # Only here: half of the standard library's network code, which no working command needs.
    import shlex
    from urllib.parse import urlparse
    from urllib.request import url2pathname

    origin = _origin()
    url, below = origin.get("url", ""), f"plugins/{distribution}"
    extras = f"[{extra}]" if extra else ""
    folder = Path(url2pathname(urlparse(url).path)) / below
    if "dir_info" in origin and folder.is_dir():
        return f"pip install {shlex.quote(str(folder) + extras)}"
    if vcs := origin.get("vcs_info", {}).get("vcs"):
        named = f"{distribution}{extras} @ " if extra else ""
        return f'pip install "{named}{vcs}+{url}#subdirectory={below}"'
    return f"install {distribution}{extras} from the repository of etdev"


def _origin() -> dict[str, Any]:
    """Return what pip wrote of the place that etdev was installed from; nothing for an index."""
    import json
    from importlib.metadata import distributions

    for found in distributions(name="etdev"):
        if text := found.read_text("direct_url.json"):
            return {**json.loads(text)}
    return {}


def _announced(text: str) -> str:
    """Return the first line of a text and, if it ends with a colon, the lines after it."""
    head = text.strip().partition("\n")[0].strip()
    line = " ".join(text.split()) if head.endswith(":") else head
    return line if len(line) <= _MOST or line is head else f"{line[:_MOST]} ..."
