"""plugins/TUTORIAL.md: each command runs, and prints what the page shows, but for its numbers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import ROOT, Block, blocks
from support.shell import invoke

PAGE = ROOT / "plugins/TUTORIAL.md"


def shape(text: str) -> list[str]:
    """The lines without numbers and widths, in any order: rows of a profile are by time."""
    lines = (re.sub(r"[\d.,]+|-{2,}", "N", line) for line in text.splitlines())
    return sorted(" ".join(line.split()) for line in lines)


def printed(block: Block, folder: Path) -> str:
    """What the commands of a block print on stdout, one after another; etdev's in this process."""
    told = []
    for line in block.text.splitlines():
        words, _, other = line.partition("  #")[0].partition(" || ")
        if not words.startswith("etdev "):
            done = subprocess.run(words, shell=True, cwd=folder, capture_output=True, text=True)
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            answer = invoke(words.removeprefix("etdev ").replace("20s", "2s"))
            code, out, err = answer.exit_code, answer.stdout, answer.stderr
        assert code == (1 if other else 0), f"{line}\n{out}{err}"
        told += [*out.splitlines(), *(e for e in err.splitlines() if e.startswith("error"))]
    return "\n".join(line.rstrip() for line in told).strip() + "\n"


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("c++") or shutil.which("clang++")), reason="no C++ compiler")
def test_the_tutorial_prints_what_it_shows(tmp_path, monkeypatch, request):
    monkeypatch.chdir(here := tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("ETDEV_CACHE", str(here / "cache"))
    monkeypatch.setenv("ETDEV_MEASUREMENTS", str(here / "measured"))
    page = PAGE.read_text("utf-8")
    (net,) = blocks(PAGE, "python")
    (here / net.file).write_text(net.text)
    told = list(blocks(PAGE, "sh", ""))
    for block, after in zip(told, [*told[1:], None], strict=True):
        if block.language != "sh":
            continue
        output = printed(block, here)
        if after is None or after.language:
            continue
        if request.config.getoption("--rewrite"):
            new = page.replace(
                f"{block.text}```\n\n```\n{after.text}", f"{block.text}```\n\n```\n{output}"
            )
            assert output in new
            page = new
        else:
            assert shape(output) == shape(after.text), block.title
    PAGE.write_text(page, "utf-8") if request.config.getoption("--rewrite") else None
    assert len(page.splitlines()) <= 150
