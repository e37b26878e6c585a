"""The watchdog: a call that takes long is named meanwhile, and refused if it took too long."""

import re
import sys
import threading
import time
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
import torch
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from support.models.small import PAIR, AddMul
from support.shell import process
from support.shell.distributions import put
from support.toys.accelerator import Accelerator

from etdev import KeepWhole, Limits, Lowerer, hookimpl
from etdev.errors import CompileError, EtdevError, EtdevWarning, PluginError
from etdev.registry import PluginEntry, Registry, answers, watchdog
from etdev.registry.discovery import load_plugin
from etdev.registry.extensions import Candidate
from etdev.registry.selection import from_object

CURE = "raise hook_timeout_s in the plugin's limits, or leave the plugin out"


def slow():
    """Take longer than the limits here."""
    time.sleep(0.4)


def test_a_slow_hook_is_named_while_it_runs_and_refused_when_it_returns(monkeypatch):
    class Slow(Accelerator):
        @hookimpl
        def claim_nodes(self):
            time.sleep(1)

    told = []
    lowerer = Lowerer(
        [Slow("npu")],
        limits={"npu": {"hook_timeout_s": 0.6}},
        listener=lambda stage, detail: told.append((stage, detail)),
    )
    monkeypatch.setattr(watchdog, "PATIENCE_S", 0.2)
    with pytest.raises(PluginError) as caught:
        lowerer.plan(AddMul(), PAIR)
    assert str(caught.value) == (
        f"npu: claim_nodes for method 'forward' took more than 0.6 s; {CURE}"
    )
    waiting = "waiting for npu: claim_nodes for method 'forward'"
    details = [detail for stage, detail in told if stage == waiting]
    assert details[-1] == "1 s, over its limit of 0.6 s"
    assert not [t for t in threading.enumerate() if t.name == "etdev-watchdog"]


@pytest.mark.parametrize("where", ["hook", "compile"])
def test_what_seems_to_hang_is_named_with_the_setting_that_would_refuse_it(monkeypatch, where):
    class Slow(Accelerator):
        @hookimpl
        def annotate(self):
            if where == "hook":
                time.sleep(0.8)

    monkeypatch.setitem(watchdog.HANGS_S, f"{where}_timeout_s", 0.1)
    backend = "SlowBackend" if where == "compile" else "FakeAccelerator"
    call = "annotate for method 'forward'" if where == "hook" else "SlowBackend on forward/npu_0"
    with pytest.warns(EtdevWarning) as caught:
        Lowerer([Slow("npu", backend=backend)]).lower(AddMul(), PAIR)
    cure = f"{where}_timeout_s in the plugin's limits would refuse it"
    texts = [str(each.message) for each in caught]
    # Nothing is ended.
    assert re.fullmatch(rf"npu: {call} has not returned for [01] s; {cure}", texts[0])


def test_an_error_counts_and_not_how_long_it_took_to_come():
    def claim_nodes(self):
        slow()
        raise KeyError("aten.add")

    Failing = type("Failing", (Accelerator,), {"claim_nodes": hookimpl(claim_nodes)})  # noqa: N806
    with pytest.raises(PluginError, match="npu: claim_nodes raised KeyError"):
        Lowerer([Failing("npu")], limits={"npu": {"hook_timeout_s": 0.3}}).plan(AddMul(), PAIR)


class SlowBackend(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        slow()
        return PreprocessResult(processed_bytes=b"slow")


def test_a_slow_compiler_is_refused_when_it_returns():
    plugin = Accelerator("npu", backend="SlowBackend")
    with pytest.raises(CompileError) as caught:
        Lowerer([plugin], limits={"npu": Limits(compile_timeout_s=0.3)}).lower(AddMul(), PAIR)
    cure = CURE.replace("hook", "compile")
    assert str(caught.value) == f"npu: SlowBackend on forward/npu_0 took more than 0.3 s; {cure}"


def test_what_takes_a_compiler_too_long_is_left_to_the_next_plugin():
    plugin = Accelerator("npu", backend="SlowBackend")
    limits = {"npu": Limits(compile_timeout_s=0.3)}
    lowered = Lowerer([plugin], limits=limits, on_failure="fallback").lower(AddMul(), PAIR)
    assert set(lowered.plan["forward"].ledger.owned()) == {"portable"}
    (verdict, *_) = next(iter(lowered.plan["forward"].ledger)).verdicts
    assert (verdict.code, "took more than 0.3 s" in verdict.text) == ("compile-failed", True)


@pytest.mark.parametrize("place", ["enters", "leaves", "leaves after an error"])
def test_a_slow_compile_context_is_refused(place):
    class Slow(Accelerator):
        @hookimpl
        def compile_context(self, device):
            @contextmanager
            def context():
                if place == "enters":
                    slow()
                try:
                    yield
                finally:
                    slow()

            return context()

    backend = "FailsNow" if place.endswith("error") else "FakeAccelerator"
    lowerer = Lowerer([Slow("npu", backend=backend)], limits={"npu": {"hook_timeout_s": 0.3}})
    with pytest.raises(EtdevError) as caught:
        lowerer.lower(AddMul(), PAIR)
    when = "entering" if place == "enters" else "leaving"
    if place.endswith("error"):
        assert "FailsNow failed on forward/npu_0" in str(caught.value)
    else:
        text = f"npu: {when} compile_context for cpu took more than 0.3 s; {CURE}"
        assert str(caught.value) == text


class FailsNow(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise ValueError("at once")


def test_a_slow_check_of_keep_whole_is_refused():
    class Slow(Accelerator):
        @hookimpl
        def keep_whole(self):
            return KeepWhole([torch.ops.aten.add.Tensor], when=lambda node: slow())

    lowerer = Lowerer([Slow("npu")], limits={"npu": {"hook_timeout_s": 0.3}})
    with pytest.raises(PluginError) as caught:
        lowerer.plan(AddMul(), PAIR)
    assert str(caught.value) == (
        f"npu: keep_whole's check of 'add' for method 'forward' took more than 0.3 s; {CURE}"
    )


def test_a_slow_constructor_is_refused(monkeypatch):
    class Slow(Accelerator):
        def __init__(self):
            slow()

    registry = Registry((PluginEntry("npu", limits=Limits(hook_timeout_s=0.3)),))
    monkeypatch.setitem(sys.modules, "slow_npu", SimpleNamespace(Plugin=Slow))
    candidate = Candidate(EntryPoint("npu", "slow_npu:Plugin", "etdev"), "slow-npu", "1.0")
    with pytest.raises(PluginError) as caught:
        load_plugin(candidate, registry)
    assert str(caught.value) == f"npu: its constructor took more than 0.3 s; {CURE}"


def test_limits_hold_in_any_thread():
    class Slow:
        name = "npu"

        @hookimpl
        def probe(self):
            slow()

    plugin, errors = from_object(Slow()), []
    plugin.limits = Limits(hook_timeout_s=0.1)

    def ask():
        try:
            answers.probe(plugin)
        except PluginError as error:
            errors.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert errors == [f"npu: probe took more than 0.1 s; {CURE}"]


@pytest.mark.parametrize("value", [0, -1, "1", float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["hook_timeout_s", "compile_timeout_s"])
def test_a_time_limit_is_a_number_of_seconds(name, value):
    with pytest.raises((TypeError, ValueError), match=f"'{name}' must be "):
        Limits(**{name: value})


def test_a_plugin_whose_import_takes_too_long_is_named_by_the_command(tmp_path):
    source = "import time\ntime.sleep(1.5)\nPlugin = object\n"
    put(tmp_path, "slow-npu", source, {"etdev": {"npu": "{module}:Plugin"}})
    (tmp_path / "registry.toml").write_text("[plugins.npu]\nhook_timeout_s = 1\n")
    code = f"sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "from etdev.registry import watchdog\nwatchdog.PATIENCE_S = 0.5\nmain()"
    done = process("plugins", code=code, cwd=tmp_path)
    assert "waiting for npu: its import" in done.stderr
    assert "its import took more than 1 s" in " ".join(done.stdout.split())
