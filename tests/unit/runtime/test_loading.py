"""A process that only runs programs has ExecuTorch's runtime without its compiler."""

import subprocess
import sys

import pytest

LOAD = """
import sys
sys.path[:0] = sys.argv[1:]
from etdev.runtime.loading import load_runtime
load_runtime()
"""


def told(code, *path):
    start = [sys.executable, "-c", LOAD + code, *map(str, path)]
    done = subprocess.run(start, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_runtime_comes_without_the_compiler():
    code = """
from executorch.runtime import Runtime
print(*Runtime.get().backend_registry.registered_backend_names)
print(*(name in sys.modules for name in ("executorch.exir", "torch._inductor.ir")))
"""
    names = told(code)
    assert "XnnpackBackend" in names
    assert names[-2:] == ["False", "False"]


# Fakes of ExecuTorch: releases whose runtime needs its compiler.
@pytest.mark.parametrize(
    "needs", ["from executorch.exir import X", "import executorch.exir as exir; exir.X"]
)
def test_a_runtime_that_needs_the_compiler_gets_it(needs, tmp_path):
    for name, text in (("exir", "X = 1"), ("runtime", needs)):
        (tmp_path / "executorch" / name).mkdir(parents=True)
        (tmp_path / "executorch" / name / "__init__.py").write_text(text)
    (tmp_path / "executorch" / "__init__.py").touch()
    assert told("print(sys.modules['executorch.exir'].X)", tmp_path) == ["1"]
