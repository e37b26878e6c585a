"""The entry point of the command line: `etdev`, and where its commands are."""

from __future__ import annotations

import click

from etdev.cli import options
from etdev.cli.group import Group

# A command is a file of this folder that defines `command`; here it gets its place in the help.
COMMANDS = (
    *("plugins", "plan", "explain", "diff", "lower"),
    *("run", "inspect", "check", "cache", "new"),
)


@click.group(cls=Group, files=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="etdev", message="%(prog)s %(version)s")
@options.debug
def main() -> None:
    """Lower PyTorch models to ExecuTorch .pte files with whatever backends are installed.

    \b
    etdev plugins                            which plugins are installed and ready
    etdev plan net.py:model                  which plugin gets what, and why; compiles nothing
    etdev explain net.py:model               why which nodes are where they are
    etdev diff old.json new.json             what changed between two plans or .pte files
    etdev lower net.py:model -o net.pte      compile and write it
    etdev run net.pte --check net.py:model   run it and compare with PyTorch
    etdev inspect net.pte                    what a .pte holds
    etdev check net.pte --target cpu,cuda:0  what would not load or not run there
    etdev cache info                         what compiled partitions are kept, and where
    etdev new plugin my-npu                  write a plugin of your own to begin with

    Distributions add commands: etdev[tune] has `etdev tune`, which measures which plugins are
    fastest, and writes that .pte.

    Results go to stdout, everything else to stderr. Exit codes: 0 for success, 1 for an error, 2
    for wrong usage, 130 for Ctrl-C.
    """
