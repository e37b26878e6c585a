"""The entry point: what its help teaches, and where it finds the commands."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from support.shell import invoke, succeeds

import etdev
from etdev import cli
from etdev.cli.main import COMMANDS, main


def command(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def test_every_file_that_defines_a_command_is_one_of_them():
    files = [path.stem for path in Path(cli.__file__).parent.glob("*.py") if path.stem[0] != "_"]
    defining = {name for name in files if hasattr(import_module(f"etdev.cli.{name}"), "command")}
    assert set(COMMANDS) == defining
    assert [command(name).name for name in COMMANDS] == list(COMMANDS)


def test_the_help_teaches_every_command():
    text = succeeds("--help")
    for name in COMMANDS:
        assert f"\n  etdev {name}" in text
        assert f"\n  {name} " in text
    # Each in one line, none cut short.
    assert "..." not in text.split("Commands:")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_explains_options_and_shows_an_example_and_exit_codes(name):
    text = succeeds(f"{name} -h")
    assert text.startswith(f"Usage: etdev {name} ")
    assert f"\n  etdev {name}" in text
    assert "\n  Exit codes: 0" in text
    for option in command(name).params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.opts[-1] in text


def test_the_help_of_lower_groups_its_options():
    text = succeeds("lower --help")
    heads = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert heads == ["Options:", "Verification:", "Compilation:", "Plugins and plan:", "Messages:"]
    assert text.index("Verification:") < text.index("--edges") < text.index("Compilation:")


def test_python_m_etdev_is_etdev():
    done = subprocess.run(
        [sys.executable, "-m", "etdev", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"etdev {etdev.__version__}\n"


@pytest.mark.parametrize("name", ["plan", "lower"])
def test_the_help_says_what_a_source_is(name):
    text = " ".join(succeeds(f"{name} --help").split())
    assert "SOURCE is file.pt2, package.module:function or file.py:function." in text


def test_the_version_is_that_of_the_package():
    assert succeeds("--version") == f"etdev {etdev.__version__}\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "Usage: etdev [OPTIONS] COMMAND"),
        ("frobnicate", "No such command 'frobnicate'"),
        ("lower", "Missing argument 'SOURCE'"),
        ("lower net.py:model", "Missing option '-o'"),
        ("plan net.py:model --bad", "No such option '--bad'"),
        ("lower net.py:model --quantize", "No such option: --quantize; quantise the model in the "),
        ("run net.pte --check net.py:model --tolerance much", "'much' is not a valid float"),
        ("run net.pte --repeat 0", "0 is not in the range x>=1"),
    ],
)
def test_wrong_usage_exits_with_2(line, message):
    done = invoke(line)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
