"""Waiting: what hangs is named within seconds, and ended when its time is over."""

import signal
import sys
import threading
import time
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
import torch
from executorch.exir.backend.backend_details import BackendDetails
from models.small import PAIR, AddMul
from shell import process
from toys.accelerator import Accelerator

from etdev import KeepWhole, Limits, Lowerer, hookimpl, waiting
from etdev.errors import CompileError, EtdevError, PluginError
from etdev.registry import parse
from etdev.registry.discovery import Origin
from etdev.registry.selection import from_object

CURE = "give it more time in the plugin's limits, or leave the plugin out"


def hangs(kind):
    """Something that does not come back: Python code, a sleep, or code that catches Exceptions."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if kind == "sleeps":
                time.sleep(60)
            elif kind == "waits":
                threading.Event().wait(60)
        except Exception:
            pass


@pytest.mark.parametrize("kind", ["spins", "sleeps", "waits"])
def test_a_hook_that_hangs_is_named_and_ended(kind):
    class Hanging(Accelerator):
        @hookimpl
        def claim_nodes(self):
            hangs(kind)

    told = []
    lowerer = Lowerer(
        [Hanging("npu")],
        limits={"npu": {"hook_timeout_s": 1}},
        listener=lambda stage, detail: told.append(stage),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "PATIENCE_S", 0.3)
        with pytest.raises(PluginError) as caught:
            lowerer.plan(AddMul(), PAIR)
    assert str(caught.value) == (
        f"npu: claim_nodes for method 'forward' took more than 1 s; {CURE}"
    )
    assert "waiting for npu: claim_nodes for method 'forward'" in told
    assert not [t for t in threading.enumerate() if t.name == "etdev-watch"]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


class HangsLater(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        hangs("sleeps")


def test_a_compiler_that_hangs_is_named_and_ended():
    plugin = Accelerator("npu", backend="HangsLater")
    with pytest.raises(CompileError) as caught:
        Lowerer([plugin], limits={"npu": Limits(compile_timeout_s=0.5)}).lower(AddMul(), PAIR)
    assert str(caught.value) == f"npu: HangsLater on forward/npu_0 took more than 0.5 s; {CURE}"


def test_what_takes_a_compiler_too_long_is_left_to_the_next_plugin():
    plugin = Accelerator("npu", backend="HangsLater")
    limits = {"npu": Limits(compile_timeout_s=0.5)}
    lowered = Lowerer([plugin], limits=limits, on_failure="fallback").lower(AddMul(), PAIR)
    assert set(lowered.plan["forward"].ledger.owned()) == {"portable"}
    (verdict, *_) = next(iter(lowered.plan["forward"].ledger)).verdicts
    assert (verdict.code, "took more than 0.5 s" in verdict.text) == ("compile-failed", True)


@pytest.mark.parametrize("place", ["enters", "leaves", "leaves after an error"])
def test_a_compile_context_that_hangs_is_named_and_ended(place):
    class Hanging(Accelerator):
        @hookimpl
        def compile_context(self, device):
            @contextmanager
            def context():
                if place == "enters":
                    hangs("sleeps")
                try:
                    yield
                finally:
                    hangs("sleeps")

            return context()

    backend = "FailsNow" if place.endswith("error") else "FakeAccelerator"
    lowerer = Lowerer([Hanging("npu", backend=backend)], limits={"npu": {"hook_timeout_s": 0.3}})
    with pytest.raises(EtdevError) as caught:
        lowerer.lower(AddMul(), PAIR)
    out = "" if place == "enters" else " on its way out"
    if place.endswith("error"):
        assert "FailsNow failed on forward/npu_0" in str(caught.value)
    else:
        text = f"npu: compile_context for cpu{out} took more than 0.3 s; {CURE}"
        assert str(caught.value) == text


class FailsNow(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise ValueError("at once")


def test_a_check_of_keep_whole_that_hangs_is_named_and_ended():
    class Hanging(Accelerator):
        @hookimpl
        def keep_whole(self):
            return KeepWhole([torch.ops.aten.add.Tensor], when=lambda node: hangs("sleeps"))

    lowerer = Lowerer([Hanging("npu")], limits={"npu": {"hook_timeout_s": 0.3}})
    with pytest.raises(PluginError) as caught:
        lowerer.plan(AddMul(), PAIR)
    assert str(caught.value) == f"npu: keep_whole's check of 'add' took more than 0.3 s; {CURE}"


def test_a_constructor_that_hangs_is_named_and_ended(monkeypatch):
    class Hanging(Accelerator):
        def __init__(self):
            hangs("sleeps")

    monkeypatch.setitem(sys.modules, "slow_npu", SimpleNamespace(Plugin=Hanging))
    origin = Origin(EntryPoint("npu", "slow_npu:Plugin", "etdev"), "slow-npu", "1.0")
    with pytest.raises(PluginError) as caught:
        origin.load({}, Limits(hook_timeout_s=0.3))
    assert str(caught.value) == f"npu: its constructor took more than 0.3 s; {CURE}"


def test_in_another_thread_what_took_too_long_is_refused_in_the_end():
    class Slow:
        name = "npu"

        @hookimpl
        def probe(self):
            time.sleep(0.3)

    plugin, errors = from_object(Slow()), []
    plugin.limits = Limits(hook_timeout_s=0.1)

    def ask():
        from etdev.registry import answers

        try:
            answers.probe(plugin)
        except PluginError as error:
            errors.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert errors == [f"npu: probe took more than 0.1 s; {CURE}"]


def test_an_alarm_of_the_caller_goes_off_afterwards():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with waiting.waiting_for("npu", "its import", 5):
            pass
        time.sleep(0.4)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert rung == [signal.SIGALRM]


@pytest.mark.parametrize("value", [0, -1, "1", True, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["hook_timeout_s", "compile_timeout_s"])
def test_a_time_limit_is_a_number_of_seconds(name, value):
    with pytest.raises(PluginError, match=f"{name} is .*; it must be a number of seconds above 0"):
        Limits(**{name: value})


def test_the_registry_sets_time_limits(tmp_path):
    text = "[plugins.npu]\nhook_timeout_s = 2\ncompile_timeout_s = 1.5\n"
    (entry,) = parse(text, tmp_path / "registry.toml").entries
    assert entry.limits == Limits(hook_timeout_s=2, compile_timeout_s=1.5)


def test_a_plugin_whose_import_hangs_is_named_by_the_command_and_ended(tmp_path):
    (tmp_path / "slow_npu.py").write_text("import time\ntime.sleep(60)\n")
    info = tmp_path / "slow_npu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-npu\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[etdev]\nnpu = slow_npu:Plugin\n")
    (tmp_path / "registry.toml").write_text("[plugins.npu]\nhook_timeout_s = 4\n")
    code = f"sys.path.insert(0, {str(tmp_path)!r})\nmain()"
    done = process("plugins", code=code, cwd=tmp_path)
    assert "waiting for npu: its import" in done.stderr
    assert "its import took more than 4 s" in " ".join(done.stdout.split())
