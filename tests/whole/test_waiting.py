"""The tests of hanging.py, in a process of their own.

Late in a run of all tests the alarm took the process down, for a reason that is not known yet.
"""

import os
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("hanging.py")


def test_what_hangs_is_named_and_ended():
    options = ("-q", "-n0", "-p", "no:cacheprovider", str(CASES))
    environment = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(
        command,
        cwd=CASES.parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "21 passed" in done.stdout
