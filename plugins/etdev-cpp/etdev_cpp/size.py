"""`etdev size` shows the bytes of a .pte by part, and the libraries that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etdev import Plan
from etdev.app import Command, Document, Sheet, files, options, report, size, working

if TYPE_CHECKING:
    from etdev.schema.target import Target
    from etdev_cpp.needs import Needs

SIZE = Document("etdev.size", 1)


@click.command("size", cls=Command)
@options.program
@click.option("--plan", "plan_file", type=options.FILE, help="Its plan, from plan --json.")
@click.option(
    "--operators",
    type=options.Output(),
    help="Write selected_operators.yaml there, for a selective build of ExecuTorch.",
)
@options.target
@options.force
@options.all_rows
@options.as_json
@options.debug
def command(
    program: Path, plan_file: Path | None, operators: Path | None, target: Target | None
) -> None:
    """Show the bytes of a .pte by part, and the libraries to link.

    PROGRAM may be any .pte, not only one that etdev wrote. The libraries are the shared ones of the
    installed ExecuTorch, or of its wheel for a target. A build of ExecuTorch from source with the
    file that --operators writes has only the kernels that PROGRAM calls, for the dtypes that it
    calls them with. The modules of constants are known from the plan: that of --plan, or the one in
    the .pte, unless it was lowered with --no-ledger.

    \b
    etdev size net.pte
    etdev size net.pte --operators selected_operators.yaml
    etdev size net.pte --plan plan.json --json
    etdev size net.pte --target pi

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage.
    """  # noqa: D301 - click reads the escape
    if operators:
        files.check_writable(operators, ".yaml")
    with working(torch=False):
        from etdev_cpp.ndk import Android
        from etdev_cpp.needs import needs_of, write_operators
        from etdev_cpp.place import Place

        plan = Plan.read(plan_file) if plan_file else None
        libraries = Place(target).wheel(headers=False).libraries() if target else None
        android = bool(target and Android.of(target.triple))
        needs = needs_of(program, plan, libraries, android)
        if operators:
            write_operators(needs.footprint, operators)
    report(lambda: SIZE.of(needs), _shown(needs))


def _shown(needs: Needs) -> Iterator[Sheet | str]:
    """Yield the parts of the file, the kernels and the libraries, each as a table, and notes."""
    found = needs.footprint
    parts = [
        (p.kind, needs.plugins.get(p.owner, ""), p.owner, p.method, str(p.items),
         size(p.size_bytes))
        for p in found.parts
    ]  # fmt: skip
    parts.append(("file", "", "", "", "", size(found.size_bytes)))
    yield Sheet(("part", "plugin", "backend", "method", "items", "size"), parts, needs.program)
    if needs.modules:
        modules = [
            (m.module or "(model)", ", ".join(m.holders), str(m.constants), size(m.size_bytes),
             size(m.stored_bytes))
            for m in needs.modules
        ]  # fmt: skip
        yield Sheet(("constants of", "in", "count", "size", "stored"), modules)
    if found.kernels:
        kernels = [(k.name, str(k.calls), " ".join(k.dtypes) or "-") for k in found.kernels]
        yield Sheet(("kernel to link", "calls", "dtypes"), kernels)
    if needs.libraries:
        libraries = [
            (one.file, size(one.size_bytes), size(one.saved_bytes), ", ".join(one.needed_for))
            for one in needs.libraries
        ]
        libraries.append(("all libraries", size(needs.runtime_bytes), "", ""))
        yield Sheet(("library", "size", "saved without", "needed for"), libraries)
    yield from (f"{needs.program}: {note}" for note in needs.notes)
    if needs.link:
        yield f"link with: {' '.join(needs.link)}"
