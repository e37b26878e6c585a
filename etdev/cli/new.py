"""`etdev new` writes the distribution of a new plugin, ready to be installed and tested."""

from __future__ import annotations

from pathlib import Path

import click

from etdev.cli import options, results
from etdev.cli.group import Command
from etdev.scaffold.names import Names
from etdev.scaffold.project import guide, write
from etdev.schema.documents import DISTRIBUTION, GUIDE

_OPTIONS = options.together(
    click.argument("name"),
    click.option(
        "--into",
        type=options.FILE,
        default=Path(),
        metavar="DIR",
        help="Parent of the distribution's folder; the current folder if left out.",
    ),
    options.as_json,
    options.debug,
)


@click.group("new")
def command() -> None:
    """Write the distribution of a new plugin.

    The plugin installs, lowers a model and passes its tests as it is written.

    \b
    etdev new plugin my-npu          for a backend in ExecuTorch's runtime
    etdev new backend my-npu         with a backend of its own, and a simulator for its tests
    etdev new guide                  print the guide for plugin authors
    cd etdev-my-npu
    pip install --editable ".[test]"
    etdev plugins                    lists it
    pytest                           checks the rules that etdev has for plugins

    Then change it file by file; its README says what belongs where.

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage.
    """


@command.command(cls=Command)
@_OPTIONS
def plugin(name: str, into: Path) -> None:
    """Write a plugin for a backend in ExecuTorch's runtime.

    NAME is the plugin's name in registries and plans; its distribution is etdev-NAME. Names are
    compared as pip compares them: My_NPU is my-npu. As written, the plugin gives float32 sums and
    products to a backend in the runtime, so that its tests run delegates at once.

    \b
    etdev new plugin my-npu
    etdev new plugin my-npu --into plugins

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage.
    """
    _write("plugin", Names.parse(name), into)


@command.command(cls=Command)
@_OPTIONS
def backend(name: str, into: Path) -> None:
    """Write a plugin with a backend of its own, and a simulator of this backend.

    NAME is the plugin's name in registries and plans; its distribution is etdev-NAME and its
    ExecuTorch backend NAMEBackend. The compiler has ten lines, and so has the simulator that runs
    its delegates in tests: ExecuTorch's runtime can't be given a backend from Python.

    \b
    etdev new backend my-npu
    etdev new backend my-npu --into plugins

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage.
    """
    names = Names.parse(name)
    names.check_backend()
    _write("backend", names, into)


@command.command("guide", cls=Command)
@options.debug
@options.as_json
def print_guide() -> None:
    """Print the guide for authors of plugins, in Markdown.

    It has an example, every hook, every field of a claim, the conformance kit, and how to publish.

    \b
    etdev new guide
    etdev new guide > GUIDE.md

    Exit codes: 0 for success, 2 for wrong usage.
    """
    results.report(lambda: GUIDE.stamped({"guide": guide()}), [guide()])


def _write(kind: str, names: Names, into: Path) -> None:
    folder = write(kind, names, into)
    files = [str(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    about = {"kind": kind, "plugin": names.plugin, "distribution": names.distribution}
    results.report(
        lambda: DISTRIBUTION.stamped({**about, "folder": str(folder), "files": files}),
        [*files, f'\nplugin {names.plugin}; next: pip install --editable "{folder}[test]"'],
    )
