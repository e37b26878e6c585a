"""The report of a row for upstream: its script fails without etdev, as the report says."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from support.quirks import plain
from support.quirks.children import PLAIN, Judge
from support.quirks.report import report
from support.quirks.rows import ROWS
from support.quirks.verdict import judge

# One that raises an error and one with wrong values; neither ends its process.
QUICK = ("mixed-dtypes", "lost-write-back")


@pytest.fixture(scope="module")
def child():
    child = Judge(PLAIN)
    yield child
    child.close()


@pytest.mark.slice("lost-write-back")
@pytest.mark.parametrize("name", ROWS)
def test_the_script_of_a_report_fails_as_it_says(name, child, tmp_path):
    row = ROWS[name]
    if not row.is_present:
        pytest.skip(f"fixed in {row.fixed}")
    verdict = judge(name, plain.lower) if name in QUICK else child.verdict(name)
    text = report(row, verdict)
    assert "etdev" not in text
    assert "support" not in re.findall(r"(?m)^(?:from|import) (\w+)", text)
    (tmp_path / "script.py").write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    # Isolated, so that it finds no module of these tests.
    command = [sys.executable, "-I", "-W", "ignore", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if row.undefined and done.returncode == 0:
        return
    if verdict.kind == "crash":
        assert f"**Actual:** The process ends with {signal.Signals(-done.returncode).name}." in text
        return
    assert done.returncode == 1, done.stderr
    if verdict.kind == "wrong":
        assert "**Actual:** They differ: in call" in text
        assert "in assert_close" in done.stderr
    else:
        error, line = re.search(r"\*\*Actual:\*\* It fails: `(\w+): (.*?)`\.", text).groups()
        assert re.search(rf"\b{error}\b", done.stderr)
        assert line in done.stderr
