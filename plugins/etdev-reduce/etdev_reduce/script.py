"""Scripts that fail as a case does, with plain torch and ExecuTorch, or with etdev.

A trial runs the same statements up to the calls.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from etdev_reduce.failure import CRASH, ERROR, HANG, SLOW, WRONG, Failure
from etdev_reduce.flows import Flow
from etdev_reduce.report import versions

# A script that hangs ends itself after this time.
_HANG_S = 60
_LIMIT_S = 600.0
# What a source may use, and the statements that import it.
_USED = {
    r"operator\.": "import operator",
    r"math\.": "import math",
    r"device\(": "from torch import device",
    r"inf\b": "from math import inf",
    r"nan\b": "from math import nan",
    r"quantized_decomposed\.": "import executorch.exir  # noqa: F401 (registers these ops)\n"
    "import executorch.kernels.quantized  # noqa: F401 (has their kernels)",
}
MODEL = "model.pt2"
_STORED = f'values = torch.export.load("{MODEL}").state_dict\n'
EXPORT = """\
with torch.no_grad():
    program = torch.export.export(model, calls[0], dynamic_shapes=dynamic_shapes)
"""
LOAD = """\
with open("repro.pte", "wb") as file:
    file.write(buffer)
loaded = Runtime.get().load_program("repro.pte")
method = loaded.load_method("forward")
"""
_CALL = """\
for inputs in calls:
    with torch.no_grad():
        expected = tree_leaves(eager(*copy.deepcopy(inputs)))
    actual = method.execute(copy.deepcopy(inputs))
"""
_CHECK = """\
    for output, wanted in zip(actual, expected, strict=True):
        print("actual:", output, "expected:", wanted, sep="\\n")
        largest = wanted.double().nan_to_num(0, 0, 0).abs().max().item() if wanted.numel() else 0
        most = {tolerance:g} * largest
        torch.testing.assert_close(output, wanted, rtol=0, atol=most, equal_nan=True)
"""
_TIME = """\
import time
times = []
for _ in range(7):
    start = time.perf_counter()
    method.execute(inputs)
    times.append(time.perf_counter() - start)
print(f"{{sorted(times)[3] * 1e3:.3g}} ms")
assert sorted(times)[3] < {limit:g}, "slow"
"""


def made(source: str) -> str:
    """Return the statements that make the model of a case, a copy for eager PyTorch and calls."""
    used = [statement for name, statement in _USED.items() if re.search(rf"\b{name}", source)]
    lines = ["import copy", "import torch", "from executorch.runtime import Runtime", *used]
    return "\n".join([*lines, f"{source}eager = copy.deepcopy(model)\n"])


def script(title: str, source: str, flow: Flow, failure: Failure) -> str:
    """Return a script that fails as a case does.

    Args:
        title: What is wrong, in one line.
        source: The case.
        flow: Lowers it.
        failure: How it fails.
    """
    parts = [made(source), EXPORT, flow.statements, LOAD]
    parts += ["from torch.utils._pytree import tree_leaves\n", *_run(failure)]
    if "values[" in source:
        parts.insert(0, _STORED)
    if failure.kind == HANG:
        ends = f"faulthandler.dump_traceback_later({_HANG_S}, exit=True)  # it hangs\n"
        parts.insert(0, f"import faulthandler\n{ends}")
    lines = "".join(parts).splitlines()
    imports = {line for line in lines if re.match("import |from ", line)}
    # As ruff sorts them.
    head = sorted(imports, key=lambda line: (line.startswith("from"), line))
    rest = [line for line in lines if line not in imports]
    return _formatted("\n".join([f'"""{title}\n\n{versions()}\n"""\n', *head, "\n", *rest, ""]))


def _run(failure: Failure) -> Iterator[str]:
    yield _CALL
    if failure.kind == WRONG:
        yield _CHECK.format(tolerance=failure.tolerance)
    if failure.kind == SLOW:
        # Half the time of the case.
        yield _TIME.format(limit=float(failure.detail.partition(" ms")[0]) / 2e3)


def _formatted(text: str) -> str:
    """Return a script as ruff formats it, if ruff is installed."""
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "100", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else text


def problem(path: Path, failure: Failure) -> str:
    """Run a script in a fresh process; return why it does not fail as it says, or nothing."""
    command = [sys.executable, "-W", "ignore", path.name]
    try:
        done = subprocess.run(
            command, cwd=path.parent, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "" if failure.kind == HANG else f"it took longer than {_LIMIT_S:g} s"
    finally:
        path.with_name("repro.pte").unlink(missing_ok=True)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    expected = {
        WRONG: "AssertionError" in done.stderr and "actual:" in done.stdout,
        SLOW: last == "AssertionError: slow",
        CRASH: done.returncode < 0,
        HANG: "Timeout" in done.stderr,
        ERROR: done.returncode == 1 and "Error" in done.stderr and "actual:" not in done.stdout,
    }[failure.kind]
    if expected:
        return ""
    return f"it ended with {done.returncode}" + (f" ({last})" if last else "")
