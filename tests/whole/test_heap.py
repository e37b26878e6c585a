"""Python's collector is kept off what no collection frees, and has all of it again afterwards."""

import subprocess
import sys

import pytest


# In processes of their own, since that of the tests is settled for good.
@pytest.mark.parametrize(
    "code",
    [
        # Settled within settled: frozen with the objects made meanwhile, until the outermost ends.
        """
with settled_heap():
    outer, made = gc.get_freeze_count(), [[] for _ in range(99)]
    with settled_heap():
        inner = gc.get_freeze_count()
        assert inner >= outer + 99 and outer > 0
    assert gc.get_freeze_count() >= outer + 99
assert gc.get_freeze_count() == 0
""",
        # A heap that the caller froze stays so.
        """
gc.freeze()
with settled_heap():
    pass
assert gc.get_freeze_count()
""",
        # What is loaded is left out for good, and then garbage is collected as ever.
        """
with loading():
    assert not gc.isenabled()
assert gc.isenabled() and gc.get_freeze_count()
with settled_heap():
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
    ],
)
def test_the_collector_is_as_it_was(code):
    start = "import gc, sys\n"
    if "settled_heap" in code:
        start += "from etdev.upstream.tracing import settled_heap\n"
    if "loading" in code:
        start += "from etdev.delegate.executors.processes import loading\n"
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
