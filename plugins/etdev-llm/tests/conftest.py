"""Leaves the tests out where the distribution can't be installed, as beside ExecuTorch 1.4."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("etdev_llm") else ["test_*.py"]
