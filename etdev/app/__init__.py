"""The facade for applications: commands and libraries that lower, run and compare models.

etdev-tune, etdev-page, etdev-cpp and etdev-llm are written with these names, with those of `etdev`,
and with the modules that plugins/README.md lists under "Writing an application". The modules behind
the names belong to the host and may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etdev import files as files
    from etdev.app import options as options
    from etdev.app.eager import EagerMethod as EagerMethod
    from etdev.app.program import ProgramFile as ProgramFile
    from etdev.app.quantizers import quantizers as quantizers
    from etdev.app.setup import Setup as Setup
    from etdev.cli import sources as sources
    from etdev.cli.group import Command as Command
    from etdev.cli.progress import working as working
    from etdev.cli.results import report as report
    from etdev.registry.plugin import Plugin as Plugin
    from etdev.report.sheet import Sheet as Sheet
    from etdev.schema.documents import Document as Document
    from etdev.schema.wording import size as size
    from etdev.verify.verification import Verification as Verification

# Where each name lives, or the module that it is. Loaded on first use: `etdev --help` imports the
# commands of applications, and must not import torch.
_HOMES = {
    "Command": "etdev.cli.group",
    "Document": "etdev.schema.documents",
    "EagerMethod": "etdev.app.eager",
    "Plugin": "etdev.registry.plugin",
    "ProgramFile": "etdev.app.program",
    "Setup": "etdev.app.setup",
    "Sheet": "etdev.report.sheet",
    "Verification": "etdev.verify.verification",
    "quantizers": "etdev.app.quantizers",
    "report": "etdev.cli.results",
    "size": "etdev.schema.wording",
    "working": "etdev.cli.progress",
}
_MODULES = {
    "files": "etdev.files",
    "options": "etdev.app.options",
    "sources": "etdev.cli.sources",
}

__all__ = [  # noqa: RUF022
    "Command", "options", "working", "report", "Document", "Sheet", "size",
    "sources", "files", "ProgramFile",
    "EagerMethod", "Setup", "quantizers", "Plugin", "Verification",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found: Any = import_module(_MODULES[name])
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'etdev.app' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
