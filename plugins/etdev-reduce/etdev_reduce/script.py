"""Scripts that fail as cases do, with plain torch and ExecuTorch, or with etdev.

A trial runs the same statements up to the calls.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from signal import Signals
from textwrap import indent

from etdev_reduce.case import Cases
from etdev_reduce.failure import CRASH, ERROR, HANG, SLOW, WRONG, Failure
from etdev_reduce.flows import PORTABLE, Flow
from etdev_reduce.report import versions

# A script that hangs ends itself after this time.
_HANG_S = 60
_LIMIT_S = 600.0
MODEL = "model.pt2"
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
_IMPORTS = "import copy\nimport torch\nfrom executorch.runtime import Runtime\n"
_EXPORT = "torch.export.export(model{0}, calls{0}[0]{1})"
LOAD = """\
with open("repro.pte", "wb") as file:
    file.write(buffer)
loaded = Runtime.get().load_program("repro.pte")
"""
_CALL = """\
method = loaded.load_method({1})
for inputs in calls{0}:
    with torch.no_grad():
        expected = tree_leaves(eager{0}(*copy.deepcopy(inputs)))
    actual = method.execute(copy.deepcopy(inputs))
"""
_CHECK = """\
    print("actual:", actual, "expected:", expected, sep="\\n")
    assert len(actual) == len(expected)
    for output, wanted in zip(actual, expected):
        largest = wanted.double().nan_to_num(0, 0, 0).abs().max().item() if wanted.numel() else 0
        most = {tolerance:g} * largest
        torch.testing.assert_close(output, wanted, rtol=0, atol=most, equal_nan=True)
"""
# The median times in seconds of a call of `method`, and of the same with portable kernels.
TIMED = f"""\
import time
def median(method):
    ends = [time.perf_counter()]
    for _ in range(7):
        method.execute(inputs)
        ends.append(time.perf_counter())
    return sorted(map(float.__sub__, ends[1:], ends))[3]
slow = median(method)
{PORTABLE.statements}{LOAD}fast = median(loaded.load_method({{method}}))
times = f"{{{{slow * 1e3:.3g}}}} ms, portable kernels {{{{fast * 1e3:.3g}}}} ms"
"""


def source(cases: Cases) -> str:
    """Return the statements that make `model`, `eager` and `calls`, and export `program`.

    For several methods these are mappings, and the models share what the methods share.
    """
    common = _common(cases)
    shared = {place: f"shared_{number}" for number, place in enumerate(common)}
    kinds = {name: re.sub(r"\W|_", "", name.title()) * (len(cases) > 1) + "Model" for name in cases}
    text = "".join(case.model(kinds[name], shared) for name, case in cases.items())
    text += "torch.manual_seed(0)\n"
    text += "".join(f"{shared[place]} = {made}\n" for place, made in common.items())
    text += f"model = {_each({name: f'{kind}().eval()' for name, kind in kinds.items()})}\n"
    text += f"calls = {_each({name: case.inputs() for name, case in cases.items()})}\n"
    options = ""
    if any(case.dynamic for case in cases.values()):
        text += f"shapes = {_each({name: case.shapes() for name, case in cases.items()})}\n"
        options = f", dynamic_shapes=shapes{_own(cases)}"
    exported = _EXPORT.format(_own(cases), options)
    program = exported if len(cases) == 1 else f"{{name: {exported} for name in model}}"
    text += f"eager = copy.deepcopy(model)\nwith torch.no_grad():\n    program = {program}\n"
    used = (statement for name, statement in _USED.items() if re.search(rf"\b{name}", text))
    return _IMPORTS + "".join(f"{statement}\n" for statement in used) + text


def shares_state(cases: Cases) -> bool:
    """Return True if methods share something that one of them writes to."""
    common = _common(cases)
    recordings = (case.recording for case in cases.values())
    return any(own.places[name] in common for own in recordings for name in own.written)


def _common(cases: Cases) -> dict[int, str]:
    """Return the sources of the weights and states of several methods, by place in memory."""
    held = [case.held() for case in cases.values()]
    count = Counter(place for own in held for place in own)
    return {place: made for own in held for place, made in own.items() if count[place] > 1}


def _own(cases: Cases) -> str:
    """Return the subscript that takes what is a method's, in the statements of all methods."""
    return "[name]" if len(cases) > 1 else ""


def _each(texts: Mapping[str, str]) -> str:
    """Return the only one of some expressions, or a mapping of them."""
    if len(texts) == 1:
        return next(iter(texts.values()))
    return f"{{{', '.join(f'{name!r}: {text}' for name, text in texts.items())}}}"


def script(title: str, cases: Cases, flow: Flow, failure: Failure) -> str:
    """Return a script that fails as cases do.

    Args:
        title: What is wrong, in one line.
        cases: The cases by method.
        flow: Lowers them.
        failure: How they fail.
    """
    made, method = source(cases), '"forward"' if len(cases) == 1 else "name"
    calls = _CALL.format(_own(cases), method)
    if failure.kind == WRONG:
        calls += _CHECK.format(tolerance=failure.tolerance)
    if failure.kind == SLOW:
        calls += TIMED.format(method=method)
        calls += f'assert slow < {failure.tolerance:g} * fast, "slow"\n'
    if len(cases) > 1:
        calls = f"for name in model:\n{indent(calls, ' ' * 4)}"
    text = f"{made}{flow.statements}{LOAD}from torch.utils._pytree import tree_leaves\n{calls}"
    if "values[" in made:
        text = f'values = torch.export.load("{MODEL}").state_dict\n{text}'
    if failure.kind == HANG:
        ends = f"faulthandler.dump_traceback_later({_HANG_S}, exit=True)  # it hangs\n"
        text = f"import faulthandler\n{ends}{text}"
    lines = text.splitlines()
    imports = {line for line in lines if re.match("import |from ", line)}
    # As ruff sorts them.
    head = sorted(imports, key=lambda line: (line.startswith("from"), line))
    rest = [line for line in lines if line not in imports]
    return _formatted("\n".join([f'"""{title}\n\n{versions(text)}\n"""\n', *head, "\n", *rest, ""]))


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
    # The signal, the type of the error, or how the process ends without one.
    cause = failure.detail.partition(":")[0]
    expected = {
        WRONG: "AssertionError" in done.stderr and "actual:" in done.stdout,
        SLOW: last == "AssertionError: slow",
        CRASH: done.returncode < 0 and Signals(-done.returncode).name == cause,
        HANG: "Timeout" in done.stderr,
        ERROR: cause in f"{done.stderr} ended with {done.returncode}",
    }[failure.kind]
    if expected:
        return ""
    return f"it ended with {done.returncode}" + (f" ({last})" if last else "")
