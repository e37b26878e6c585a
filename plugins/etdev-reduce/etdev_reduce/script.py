"""Scripts that fail as a case does, with plain torch and ExecuTorch, or with etdev."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from etdev_reduce.failure import CRASH, ERROR, HANG, SLOW, WRONG, Failure
from etdev_reduce.flows import Etdev, Executorch, Flow
from etdev_reduce.report import versions

# A script that hangs ends itself after this time.
_HANG_S = 60
_LIMIT_S = 600.0
_LOAD = """\
program = torch.export.load("model.pt2")
model, calls = program.module(), [program.example_inputs[0]]
"""
_EXPORT = """\
with torch.no_grad():
    program = torch.export.export(model, calls[0]{shapes})
"""
_RUN = """\
with open("repro.pte", "wb") as file:
    file.write(buffer)
loaded = Runtime.get().load_program("repro.pte")
method = loaded.load_method("forward")
"""
_ONE, _SEVERAL = "inputs = calls[0]\n{}", "for inputs in calls:\n{}"
_COMPARE = """\
with torch.no_grad():
    expected = tree_leaves(eager(*copy.deepcopy(inputs)))
actual = method.execute(copy.deepcopy(inputs))
"""
_CHECK = """\
for output, wanted in zip(actual, expected, strict=True):
    print("actual:", output, "expected:", wanted, sep="\\n")
    most = {tolerance:g} * wanted.abs().nan_to_num(0, 0, 0).max().item() if wanted.numel() else 0
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


def script(  # noqa: PLR0913 (the parts of a script)
    title: str, source: str, flow: Flow, failure: Failure, tolerance: float, stored: bool = False
) -> str:
    """Return a script that fails as a case does.

    Args:
        title: What is wrong, in one line.
        source: The case.
        flow: Lowers it.
        failure: How it fails.
        tolerance: Largest error, relative to the largest value of an output.
        stored: The case is read from `model.pt2`.
    """
    several = "calls = [(" in source and source.count("), (") > 0 and not stored
    imports = ["import copy", "import torch", "from torch.utils._pytree import tree_leaves"]
    imports += [name for name in ("import math", "import operator") if f"{name[7:]}." in source]
    if "quantized_decomposed" in source:
        imports.append("import executorch.exir  # noqa: F401 (registers quantized_decomposed)")
        imports.append("import executorch.kernels.quantized  # noqa: F401 (its kernels)")
    imports.append("from executorch.runtime import Runtime")
    if isinstance(flow, Etdev):
        imports.append("from etdev import Lowerer")
        settings = ", ".join(
            f"{k}={v!r}" for k, v in flow.settings.items() if v not in (None, {}, [], ())
        )
        lower = f"buffer = Lowerer({settings}).lower(program).to_executorch().buffer\n"
    else:
        lower = _lowered(flow, imports)
    shapes = ", dynamic_shapes=dynamic_shapes" if "dynamic_shapes = (" in source else ""
    body = source.replace("dynamic_shapes = None\n", "")
    made = _LOAD if stored else body + _EXPORT.format(shapes=shapes)
    compare = _COMPARE + (_CHECK.format(tolerance=tolerance) if failure.kind == WRONG else "")
    if several:
        compare = "".join(f"    {line}\n" for line in compare.splitlines())
    run = (_SEVERAL if several else _ONE).format(compare)
    if failure.kind == SLOW:
        run += _TIME.format(limit=_seconds(failure))
    if failure.kind == HANG:
        imports.append("import faulthandler")
        made = f"faulthandler.dump_traceback_later({_HANG_S}, exit=True)  # it hangs\n{made}"
    text = f'"""{title}\n\n{versions()}\n"""\n\n' + "\n".join(_sorted(imports)) + "\n\n\n"
    text += made + "eager = copy.deepcopy(model)\n" + lower + _RUN + run
    return _formatted(text)


def _lowered(flow: Executorch, imports: list[str]) -> str:
    imports += flow.imports.splitlines()
    given = f", partitioner=[{flow.partitioner}]" if flow.partitioner else ""
    if flow.in_two:
        imports.append("from executorch.exir import EdgeCompileConfig, to_edge")
        config = "EdgeCompileConfig(_check_ir_validity=False)"
        delegated = f".to_backend({flow.partitioner})" if flow.partitioner else ""
        manager = f"to_edge(program, compile_config={config}){delegated}"
    else:
        imports.append("from executorch.exir import to_edge_transform_and_lower")
        manager = f"to_edge_transform_and_lower(program{given})"
    return f"manager = {manager}\nbuffer = manager.to_executorch().buffer\n"


def _sorted(imports: list[str]) -> list[str]:
    return sorted(dict.fromkeys(imports), key=lambda line: (line.startswith("from"), line))


def _seconds(failure: Failure) -> float:
    """Return half the time of a slow case."""
    return float(failure.detail.partition(" ms")[0]) / 2e3


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
