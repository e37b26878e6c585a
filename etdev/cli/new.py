"""`etdev new` writes the distribution of a new plugin, ready to be installed and tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etdev.cli import options, results
from etdev.cli.docs import document
from etdev.cli.group import Command, loaded
from etdev.registry import extensions
from etdev.scaffold.names import Names
from etdev.scaffold.project import KINDS, write
from etdev.schema.documents import DISTRIBUTION, GUIDE


class New(Command):
    """A command whose KIND may be a command of another distribution."""

    def make_context(
        self, info_name: str | None, args: list[str], *rest: Any, **settings: Any
    ) -> click.Context:
        added = {*extensions.candidates(extensions.NEW), *extensions.EXTRAS[extensions.NEW]}
        if args and args[0] in added:
            own = loaded(extensions.NEW, args[0])
            return own.make_context(f"{info_name} {args[0]}", args[1:], *rest, **settings)
        return super().make_context(info_name, args, *rest, **settings)


@click.command("new", cls=New)
@click.argument("kind", type=click.Choice([*KINDS, "guide"]))
@click.argument("name", default=None, required=False)
@click.option(
    "--into",
    type=options.FILE,
    default=Path(),
    metavar="DIR",
    help="Parent of the distribution's folder; the current folder if left out.",
)
@options.as_json
@options.debug
def command(kind: str, name: str | None, into: Path) -> None:
    """Write the distribution of a new plugin, or print the guide.

    NAME is the plugin's name in registries and plans; its distribution is etdev-NAME. Names are
    compared as pip compares them: My_NPU is my-npu. The plugin installs, lowers a model and passes
    its tests as it is written; its README says what to change.

    \b
    etdev new plugin my-npu      for a backend in ExecuTorch's runtime
    etdev new backend my-npu     with a backend of its own, and a simulator for its tests
    etdev new guide              print the guide, in Markdown
    etdev new app net.pte        with etdev[cpp]: a C++ project that runs a .pte
    cd etdev-my-npu
    pip install --editable ".[test]"
    etdev plugins                lists it
    pytest                       checks the rules that etdev has for plugins

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage.
    """
    if kind == "guide":
        text = document("plugin")
        results.report(lambda: GUIDE.stamped({"guide": text}), [text])
        return
    if name is None:
        raise click.UsageError(f"give a NAME: etdev new {kind} my-npu")
    names = Names.parse(name)
    if kind == "backend":
        names.check_backend()
    folder = write(kind, names, into)
    files = [str(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    about = {"kind": kind, "plugin": names.plugin, "distribution": names.distribution}
    results.report(
        lambda: DISTRIBUTION.stamped({**about, "folder": str(folder), "files": files}),
        [*files, f'\nplugin {names.plugin}; next: pip install --editable "{folder}[test]"'],
    )
