"""Python's collector makes no full collection while graphs are built, and has all of them after."""

import os
import subprocess
import sys

import pytest

# In processes of their own, since that of the tests is settled for good; torch is imported once.
START = """
import gc, os, sys
from etdev.upstream.shortcuts.collector import without_full_collections
from etdev.upstream.shortcuts.collector import loading
assert "executorch.exir" not in sys.modules
for code in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            exec(code)
        except BaseException as error:
            print(code, repr(error), flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""
CODES = (
    # Full collections wait for the end of the outermost, and happen as before afterwards.
    """
usual, full = gc.get_threshold(), gc.get_stats()[2]["collections"]
with without_full_collections():
    with without_full_collections():
        made = [[] for _ in range(300_000)]
    made += [[] for _ in range(300_000)]
    assert gc.get_stats()[2]["collections"] == full
    assert gc.get_stats()[1]["collections"] > 0
assert gc.get_threshold() == usual
made += [[] for _ in range(9_000)]
assert gc.get_stats()[2]["collections"] == full
made += [[] for _ in range(300_000)]
assert gc.get_stats()[2]["collections"] > full
""",
    # A heap that the caller froze stays so.
    """
gc.freeze()
with without_full_collections():
    pass
assert gc.get_freeze_count()
""",
    # What is loaded is left out for good, and then garbage is collected as ever.
    """
with loading():
    assert not gc.isenabled()
assert gc.isenabled() and gc.get_freeze_count()
with without_full_collections():
    pass
assert gc.get_freeze_count()
""",
    """
try:
    with loading():
        raise ImportError
except ImportError:
    assert gc.isenabled()
""",
    # Those who have switched the collector off, or have ExecuTorch already, see no change.
    """
gc.disable()
with loading():
    pass
assert not gc.isenabled() and not gc.get_freeze_count()
""",
    """
sys.modules["executorch.exir"] = sys
with loading():
    assert gc.isenabled()
assert not gc.get_freeze_count()
""",
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each is a fork")
def test_the_collector_is_as_it_was():
    words = [sys.executable, "-c", START, *CODES]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
