"""The reliability page: every fault in its table is tried here, and the outcomes are written by it.

`pytest tests/behaviour/test_reliability.py --rewrite` writes plugins/RELIABILITY.md anew.
"""

import _thread
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from attrs import define, frozen
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from support.hostile import EXAMPLES
from support.hostile.bombs import bomb
from support.hostile.strangers import hostile, saved_dynamic
from support.models import nets
from support.models.small import PAIR, AddMul
from support.shell import MLP, error_of, invoke, succeeds
from support.toys.accelerator import Accelerator

from etdev import Claim, Group, Lowerer, Plan, hookimpl
from etdev.cli.main import main
from etdev.delegate.cache.entry import MAGIC, CacheEntry
from etdev.errors import EtdevError, EtdevWarning
from etdev.locking import Lock
from etdev.registry import parse

PAGE = Path(__file__).parents[2] / "plugins/RELIABILITY.md"
KILLS = 20 if EXAMPLES else 3
MARK = "<!-- The table is written by tests/behaviour/test_reliability.py --rewrite. -->\n"


@define
class Desk:
    """A folder with a .pte, and what is known of it."""

    folder: Path
    pte: Path
    patch: pytest.MonkeyPatch

    def text(self, error: object) -> str:
        """An error without the folder of this run."""
        return str(error).replace(f"{self.folder}/", "").replace(str(self.folder), "here")


@frozen
class Fault:
    """A row of the table."""

    place: str
    what: str
    outcome: Callable[[Desk], object]


FAULTS: list[Fault] = []


def fault(place: str, what: str) -> Callable[[Callable[[Desk], object]], Callable[[Desk], object]]:
    """Put a fault into the table; the function tries it and gives the outcome in words."""

    def put(outcome: Callable[[Desk], object]) -> Callable[[Desk], object]:
        FAULTS.append(Fault(place, what, outcome))
        return outcome

    return put


def refused(call: Callable[[], object]) -> EtdevError:
    """The named error that a call ends with."""
    with pytest.raises(EtdevError) as caught:
        call()
    return caught.value


def said(words: str, *arguments: object) -> str:
    """The one line that a command fails with."""
    done = invoke(words, *arguments)
    assert done.exit_code == 1
    return error_of(done.stderr)


def without_cause(error: EtdevError) -> str:
    """An error without what Python, whose versions differ, says of its cause."""
    return f"{error.who}: {error.what.partition(' (')[0]}; {error.cure}"


# What plugins do.


def hook(name: str, body: Callable[..., object], **limits: float) -> Lowerer:
    """A lowerer with a plugin of which one hook does something odd."""

    class Odd(Accelerator):
        pass

    setattr(Odd, name, hookimpl(body))
    return Lowerer([Odd("npu")], limits={"npu": limits} if limits else None)


@fault("plugin", "a hook takes half a second, with `hook_timeout_s = 0.3`")
def _(desk):
    return refused(
        lambda: hook("claim_nodes", lambda self: time.sleep(0.5), hook_timeout_s=0.3).plan(
            AddMul(), PAIR
        )
    )


@fault("plugin", "a hook raises")
def _(desk):
    def claim_nodes(self):
        raise KeyError("aten.add")

    return refused(lambda: hook("claim_nodes", claim_nodes).plan(AddMul(), PAIR))


@fault("plugin", "a hook calls sys.exit")
def _(desk):
    return refused(lambda: hook("probe", lambda self: sys.exit(3)).lower(AddMul(), PAIR))


@fault("plugin", "a hook claims a node that is not there")
def _(desk):
    claim = Claim("FakeAccelerator", [Group(["nowhere"])])
    return refused(lambda: hook("claim_nodes", lambda self: claim).plan(AddMul(), PAIR))


@fault("plugin", "a hook changes the program")
def _(desk):
    def claim_nodes(self, program):
        program.graph.output_node().meta["fault"] = 1

    return refused(lambda: hook("claim_nodes", claim_nodes).plan(AddMul(), PAIR))


@fault("plugin", "a hook answers with something else")
def _(desk):
    return refused(lambda: hook("claim_nodes", lambda self: 42).plan(AddMul(), PAIR))


class FaultyBackend(BackendDetails):
    """Fails as it is told."""

    fault: str = ""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        if FaultyBackend.fault == "is slow":
            time.sleep(0.5)
            return PreprocessResult(processed_bytes=b"slow")
        if FaultyBackend.fault == "raises":
            raise RuntimeError("out of tiles")
        return None


def compiled(desk, kind, **limits):
    desk.patch.setattr(FaultyBackend, "fault", kind)
    plugin = Accelerator("npu", backend="FaultyBackend")
    return refused(lambda: Lowerer([plugin], limits={"npu": limits}).lower(AddMul(), PAIR))


@fault("backend", "its compiler takes half a second, with `compile_timeout_s = 0.3`")
def _(desk):
    return compiled(desk, "is slow", compile_timeout_s=0.3)


@fault("backend", "its compiler raises")
def _(desk):
    return compiled(desk, "raises")


@fault("backend", "its compiler returns None")
def _(desk):
    return compiled(desk, "")


# What files hold.


def altered(desk: Desk, change: Callable[[bytes], bytes], name: str = "net.pte") -> Path:
    path = desk.folder / name
    path.write_bytes(change(desk.pte.read_bytes()))
    return path


@fault(".pte", "it is cut short")
def _(desk):
    return said("inspect", altered(desk, lambda data: data[:500]))


@fault(".pte", "it is another file")
def _(desk):
    return said("inspect", altered(desk, lambda data: b"PK" + data[2:].replace(b"ET12", b"ZZ12")))


@fault(".pte", "its tables refer to each other so that they unpack to billions")
def _(desk):
    return said("inspect", bomb(desk.folder / "bomb.pte", 1000))


@fault(".pte", "its name of a method clears the screen")
def _(desk):
    done = invoke("inspect", altered(desk, lambda data: data.replace(b"forward", b"\x1b[2J[/]")))
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    return next(line for line in done.stdout.splitlines() if "2J" in line).strip()


@fault(".pte", "a byte of it has changed")
def _(desk):
    path = altered(desk, lambda data: data[:-200] + bytes([data[-200] ^ 1]) + data[-199:])
    return said("run", path).removeprefix(str(path.parent) + "/")


@fault(".pte", "its delegate's payload is garbage, and the runtime fails or dies")
def _(desk):
    start = desk.pte.read_bytes().index(b"XH00")
    path = altered(desk, lambda data: data[:start] + b"\xff" * 400 + data[start + 400 :])
    # Of a file with a digest, nothing is run.
    path.write_bytes(path.read_bytes().replace(b"etdev.digest", b"no.digest.at"))
    line = said("run", path)
    assert "the runtime failed" in line or "the process died" in line
    return "the command names the file, the method and what the runtime said"


@fault("plan", "its JSON is nested a hundred thousand deep")
def _(desk):
    return without_cause(refused(lambda: Plan.from_json("[" * 100_000, "plan.json")))


@fault("plan", "a number in it is NaN")
def _(desk):
    text = '{"methods": [], "plugins": NaN}'
    return refused(lambda: Plan.from_json(text, "plan.json"))


@fault("registry", "a value is in thousands of brackets")
def _(desk):
    text = "strict = " + "[" * 9000 + "]" * 9000
    return without_cause(refused(lambda: parse(text, Path("registry.toml"))))


@fault("registry", "a number has ten thousand digits")
def _(desk):
    text = "strict = " + "9" * 10_000
    return without_cause(refused(lambda: parse(text, Path("registry.toml"))))


@fault("registry", "it has ten thousand unknown keys")
def _(desk):
    text = "\n".join(f"key{number} = 1" for number in range(10_000))
    lines = str(refused(lambda: parse(text, Path("registry.toml")))).splitlines()
    return f"{lines[0]} … {lines[-1].strip()}"


@fault("lock", "it is not JSON")
def _(desk):
    path = desk.folder / "etdev.lock"
    path.write_text("{")
    return refused(lambda: Lock.read(path))


@fault("cache", "an entry is damaged")
def _(desk):
    return refused(lambda: CacheEntry.from_bytes(MAGIC + bytes(100), "cache entry 0123"))


@fault(".pt2", "its example inputs are a pickle that runs code")
def _(desk):
    path, mark = hostile("example inputs", saved_dynamic(desk.folder), desk.folder)
    line = said("plan", path)
    assert not mark.exists()
    return line


# What happens to the machine.


@contextmanager
def full_disk() -> Iterator[None]:
    """Files can't grow, as on a disk that is full; Python ignores the signal of that."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        # Python would keep the first hundred bytes of bytecode, and fail on them for ever.
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def without_room(desk: Desk, words: str, *arguments: object) -> str:
    """What a command fails with on a full disk, which leaves no file."""
    with full_disk():
        done = invoke(words, *arguments)
    assert not [path for path in desk.folder.rglob("*") if path.is_file()]
    assert done.exit_code == 1, done.output
    return error_of(done.stderr)


@fault("disk", "it is full when the .pte is written")
def _(desk):
    words = "lower --plugin cpu --no-cache --no-verify"
    return without_room(desk, words, MLP, "-o", desk.folder / "a.pte")


@fault("disk", "it is full when node data are written")
def _(desk):
    view = f"node-data={desk.folder / 'graph'}"
    return without_room(desk, "plan --plugin cpu", MLP, "--view", view)


@fault("disk", "it is full when the cache is written")
def _(desk):
    cache = desk.folder / "kept"
    cache.mkdir()
    with full_disk(), pytest.warns(EtdevWarning) as caught:
        Lowerer(["cpu"], cache=cache).lower(*nets.mlp())
    assert not [path for path in cache.rglob("*") if path.is_file()]
    own = [str(one.message) for one in caught if issubclass(one.category, EtdevWarning)]
    return f"warning: {own[0]}"


@fault("disk", "the folder of the .pte can't be written")
def _(desk):
    return said("lower --plugin cpu --no-cache", MLP, "-o", "/proc/self/a.pte")


@fault("process", "`kill -9` at a random moment of `etdev lower`, several times, then again")
def _(desk):
    folder = desk.folder / "killed"
    folder.mkdir()
    words = ["lower", MLP, "-o", str(folder / "a.pte"), "--plugin", "cpu", "--no-verify"]
    words += ["--cache", str(folder / "cache")]
    start = time.monotonic()
    succeeds("lower --plugin cpu --no-cache --no-verify", MLP, "-o", desk.folder / "whole.pte")
    took, chance = time.monotonic() - start, random.Random(0)
    for _ in range(KILLS):
        killed_after(chance.uniform(0, took), words)
    succeeds(" ".join(words))
    assert (folder / "a.pte").read_bytes() == (desk.folder / "whole.pte").read_bytes()
    names = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert names == {"a.pte", "cache"}
    files = [path for path in (folder / "cache").rglob("*") if path.is_file()]
    assert all(CacheEntry.from_bytes(path.read_bytes(), path.name) for path in files if path.stem)
    return "succeeds; the same bytes as ever, and no file of the killed ones is left"


def killed_after(seconds: float, words: list[str]) -> None:
    """Begin a command in a copy of this process, and kill it."""
    child = os.fork()
    if not child:
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            main(words, standalone_mode=False)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@fault("process", "Ctrl-C in a hook")
def _(desk):
    def claim_nodes(self):
        # As the handler of Ctrl-C does; OpenVINO, which other tests run in this process, may have
        # unmapped the stack that handlers of real signals run on.
        _thread.interrupt_main()
        time.sleep(1)

    lowerer = hook("claim_nodes", claim_nodes)
    # A process that a shell started in the background ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            lowerer.plan(AddMul(), PAIR)
    finally:
        signal.signal(signal.SIGINT, before)
    return f"exit code 130; interrupted: {', '.join(map(str, caught.value.args))}"


def cell(text: str) -> str:
    """A text in a cell of Markdown."""
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line.replace("[/]", "\\[/]")


@pytest.mark.skipif(sys.platform != "linux", reason="the page is written on Linux")
def test_every_fault_ends_as_the_page_says(tmp_path, mlp_pte, monkeypatch, request):
    monkeypatch.setattr(torch._logging, "set_logs", lambda **_: None)
    rows = []
    for number, fault in enumerate(FAULTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            desk = Desk(folder, mlp_pte, patch)
            outcome = desk.text(fault.outcome(desk))
        rows.append(f"| {fault.place} | {cell(fault.what)} | {cell(outcome)} |\n")
    table = "".join(["| where | fault | outcome |\n|---|---|---|\n", *rows])
    text = PAGE.read_text("utf-8") if PAGE.exists() else MARK
    head, mark, _ = text.partition(MARK)
    if request.config.getoption("--rewrite"):
        PAGE.write_text(f"{head}{mark}\n{table}", "utf-8")
    assert PAGE.read_text("utf-8") == f"{head}{mark}\n{table}", "write it anew with --rewrite"
