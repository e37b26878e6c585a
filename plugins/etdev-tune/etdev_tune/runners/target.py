"""Targets: this machine, and any Python with ExecuTorch that a command starts elsewhere."""

from __future__ import annotations

import inspect
import io
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch
from attrs import asdict
from blake3 import blake3

from etdev.app import Plugin, ProgramFile
from etdev.errors import RunError
from etdev.runtime import ending, loading
from etdev.runtime.child import Child
from etdev.runtime.runners import PYTHON, named, runner_of
from etdev_tune.exchange import Failure, Request, Result, Runner
from etdev_tune.runners.commands import ARGUMENTS, command
from etdev_tune.runners.runtimes import measured
from etdev_tune.target import facts, messages, work, worker
from etdev_tune.target.messages import receive, send

# ExecuTorch takes ten times longer to load on a small board than on a desktop.
START_S = 180.0
# Time for an answer beyond the limit of its run, which the worker enforces, and for sending files.
GRACE_S = 30.0
_SLOWEST_BYTES_PER_S = 1e5
# Packages and modules of the worker in the order of imports, since a target has no etdev.
_PACKAGES = ("etdev", "etdev.runtime", "etdev_tune", "etdev_tune.target")
_MODULES = (ending, loading, messages, facts, work, worker)
_PROGRAM = """\
import sys, types
for name, source in {sources!r}:
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    exec(compile(source, name, "exec"), module.__dict__)
module.main(orders)
"""


class Target:
    """A worker at the other end of a command, which runs programs.

    It is started when it is first asked, and again after it was lost.

    Args:
        name: The user's name for it.
        start: Text for `command`, which starts its Python.
        env: Variables to add to the environment of the command.
    """

    def __init__(self, name: str, start: str, env: Mapping[str, str]) -> None:
        self.name = name
        self._python = shlex.join(command(start, []))
        program = _program()
        # Not a character that a shell, a template or JSON would want quoted twice.
        code = f"import os;orders=open(os.dup(0),'rb');exec(orders.read({len(program)}))"
        words = command(start, ["-u", "-c", code])
        self._child = Child(name, env, words, program, tidies=True)

    def fingerprint(self) -> Mapping[str, str]:
        """Return what times on the target depend on."""
        found: Mapping[str, str] = self._first({"order": "facts"}, "describing itself")
        if "kind" in found:
            what = f"it can't describe itself: {Failure(**found)}"
            raise RunError(self.name, what, "see that ExecuTorch and its backends load there")
        return found

    def run(self, request: Request) -> Result | Failure:
        """Send the files that the target lacks, and run the program in a process of its own."""
        file, inputs = ProgramFile(request.program), io.BytesIO()
        torch.save([file.inputs(request.method, values) for values in request.inputs], inputs)
        given: list[bytes | Path] = [inputs.getvalue(), request.program, *request.data]
        contents = {self._name_there(one): one for one in given}
        names = list(contents)
        during = f"running {request.program.name}"
        lacking = self._first({"order": "lacking", "names": names}, during)
        files = {name: _read(contents[name]) for name in lacking}
        order = {
            **asdict(request, recurse=False),
            "order": "run",
            "files": {n: torch.frombuffer(data, dtype=torch.uint8) for n, data in files.items()},
            "inputs": names[0],
            "program": names[1],
            "data": names[2:],
            "imports": file.runnable().modules,
            "libraries": self._libraries(),
        }
        sending_s = sum(map(len, files.values())) / _SLOWEST_BYTES_PER_S
        found = self._ask(order, during, request.timeout_s + GRACE_S + sending_s)
        return Failure(**found) if "kind" in found else Result(**found)

    def close(self) -> None:
        """Disconnect; the worker removes its files."""
        self._child.close()

    def _first(self, order: Mapping[str, Any], during: str) -> Any:
        """Return the answer to an order, for which the worker is started if it doesn't run."""
        if self._child.is_running:
            return self._ask(order, during, GRACE_S)
        cure = f"see that this starts a Python with ExecuTorch: {self._python}"
        return self._ask(order, "connecting", START_S, cure)

    def _ask(
        self,
        order: Mapping[str, Any],
        during: str,
        limit_s: float,
        cure: str = "run it again: what was measured before is kept",
    ) -> Any:
        """Return the answer to an order, or raise a RunError with that cure for a lost worker."""
        message = io.BytesIO()
        send(message, order)
        try:
            outcome = self._child.ask(message.getvalue(), _answers, limit_s)
            failure = outcome.failure
        except OSError as error:
            failure = str(error)
        if failure:
            raise RunError(self.name, f"the connection was lost while {during}: {failure}", cure)
        return outcome.values[0]

    def _name_there(self, content: bytes | Path) -> str:
        """Return the name of a file on the target."""
        return blake3(_read(content)).hexdigest()[:32]

    def _libraries(self) -> Sequence[str]:
        """Return the libraries of kernels that a run loads."""
        return ()


class Local(Target):
    """This machine, with this Python and its libraries of kernels.

    Args:
        plugins: Name the runners that have their delegates.
        runner: Name of the runner of all programs, whatever the plugins say.
    """

    def __init__(self, plugins: Sequence[Plugin] = (), runner: str | None = None) -> None:
        self._plugins, self._runner = plugins, runner
        name = f"local, {runner}" if runner else "local"
        super().__init__(name, f"{shlex.quote(sys.executable)} {ARGUMENTS}", {})

    def fingerprint(self) -> Mapping[str, str]:
        """Return what times depend on; raise a RunError if the runner can't be used."""
        if not self._runner:
            return super().fingerprint()
        named(self._runner)
        return {**super().fingerprint(), "runner": self._runner}

    def run(self, request: Request) -> Result | Failure:
        """Run a program in a new process of the runner that has its delegates."""
        runner = runner_of(ProgramFile(request.program).artifact, self._plugins, self._runner)
        return super().run(request) if runner is PYTHON else measured(runner, request)

    def _name_there(self, content: bytes | Path) -> str:
        if isinstance(content, Path):
            return str(content.absolute())
        return super()._name_there(content)

    def _libraries(self) -> Sequence[str]:
        return sorted(torch.ops.loaded_libraries)


def open_runner(text: str, plugins: Sequence[Plugin] = (), runner: str | None = None) -> Runner:
    """Make a target, which connects when it is first asked.

    Args:
        text: `local`; `ssh:host` or `ssh:user@host:/path/to/python`; `adb`, `adb:SERIAL` or
            `adb:SERIAL:/path/to/python`; or a command that starts a Python elsewhere, with
            `{command}` in its place: `docker exec -i box {command}`.
        plugins: As for `Local`.
        runner: As for `Local`, which alone has another than `python`.

    Raises:
        RunError: The text names no target, or one that lacks the runner.
    """
    if text == "local":
        return Local(plugins, runner)
    if runner not in (None, PYTHON.name):
        raise RunError(text, f"has no runner {runner!r}", "measure with it on this machine")
    # The packages of this Python are not for another one.
    return Target(text, text, {"PYTHONPATH": os.environ.get("PYTHONPATH", "")})


def _program() -> bytes:
    """Return the worker as one Python program."""
    own = {module.__name__: inspect.getsource(module) for module in _MODULES}
    sources = {**dict.fromkeys(_PACKAGES, ""), **own}
    return _PROGRAM.format(sources=list(sources.items())).encode()


def _read(content: bytes | Path) -> bytearray:
    return bytearray(content if isinstance(content, bytes) else content.read_bytes())


def _answers(stream: IO[bytes]) -> Iterator[Any]:
    yield receive(stream)
