"""The entry point of the command line, `etdev`, and the list of its commands."""

from __future__ import annotations

import click

from etdev.cli import options
from etdev.cli.group import CommandGroup

# A file of this folder that defines `command` is a command; this is their order in the help.
COMMANDS = (
    *("plugins", "plan", "explain", "diff", "lower"),
    *("run", "inspect", "check", "cache", "quirks", "docs", "new"),
)


@click.group(
    cls=CommandGroup, files=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="etdev", message="%(prog)s %(version)s")
@options.debug
def main() -> None:
    """Lower PyTorch models to ExecuTorch .pte files with whatever backends are installed.

    \b
    etdev plugins                            which plugins are installed and ready
    etdev plan net.py:model                  which plugin gets which nodes, and why
    etdev explain net.py:model               why a node is where it is
    etdev diff old.json new.json             what changed between two plans or .pte files
    etdev lower net.py:model -o net.pte      compile and write it
    etdev run net.pte --check net.py:model   run it and compare with PyTorch
    etdev inspect net.pte                    the contents of a .pte
    etdev check net.pte --device cpu,cuda:0  problems of loading it there
    etdev cache info                         size and place of the compile cache
    etdev quirks                             upstream faults that etdev works around
    etdev docs                               README, guides and manuals, also of plugins
    etdev new plugin my-npu                  write a plugin to start from

    Distributions add commands: etdev[tune] adds `etdev tune`, which measures which plugins are
    fastest, and writes the .pte that they make.

    Results go to stdout, progress and errors to stderr. Exit codes: 0 for success, 1 for an error,
    2 for wrong usage, 130 for Ctrl-C.
    """
