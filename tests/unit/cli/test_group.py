"""Errors of the commands: one line and an exit code, or with --debug a traceback."""

from __future__ import annotations

import os
import subprocess

import pytest
from support.shell import MLP, fails, invoke, process

from etdev.cli import writing


def test_a_long_message_stays_on_one_line():
    name = "x" * 300
    assert fails(f"inspect {name}.pte").endswith("; give a .pte that ExecuTorch wrote")


@pytest.mark.parametrize("line", ["--debug inspect gone.pte", "inspect --debug gone.pte"])
def test_debug_shows_the_traceback(line):
    done = invoke(line)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "Traceback (most recent call last):" in done.stderr
    assert "FileNotFoundError" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("etdev.errors.ArtifactError: gone.pte: ")


def test_an_error_that_etdev_did_not_expect_is_one_line_too(monkeypatch):
    def fail(*_):
        raise KeyError("a bug")

    monkeypatch.setattr(writing, "check_writable", fail)
    done = invoke(f"lower {MLP} -o net.pte")
    line = "internal error: KeyError: 'a bug'; run again with --debug\n"
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", line)


def test_a_process_exits_with_the_code_of_its_error():
    error = "error: net.bin: does not end in .pte; name it net.pte\n"
    done = process("lower", MLP, "-o", "net.bin")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", error)
    assert process("lower").returncode == 2
    assert process("--version").returncode == 0


def test_a_reader_that_leaves_is_not_an_error():
    read, write = os.pipe()
    os.close(read)
    try:
        done = process("plugins", capture_output=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
