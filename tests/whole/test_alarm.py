"""Alarms: ended in time, whatever else the process does with signals, and nothing left behind."""

import ctypes
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from etdev import alarm as alarms
from etdev.errors import PluginError
from etdev.registry.alarm import Alarm, Overdue
from etdev.registry.waiting import waiting_for

# A signal stack that is unmapped again, as OpenVINO's CPU plugin leaves it behind.
DANGLING = """
import ctypes, mmap
from etdev.registry.alarm import _Stack
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
size = 1 << 16
start = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0))
assert libc.sigaltstack(ctypes.byref(_Stack(start, 0, size)), None) == 0
libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(size))
"""
CTRL_C = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
HANG = """
import time
from etdev.errors import PluginError
from etdev.registry.waiting import waiting_for
try:
    with waiting_for("npu", "probe", 0.2):
        time.sleep(60)
except PluginError as error:
    print(error.what)
"""
HOOK = "\nfrom etdev.registry.waiting import waiting_for\nwith waiting_for('npu', 'probe'):\n    "


@pytest.fixture(autouse=True)
def as_before():
    """Nothing of an alarm stays."""
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def process(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are looked at on Linux")
def test_a_signal_stack_that_is_gone_ends_the_process_without_etdev():
    assert process(DANGLING + CTRL_C).returncode == -signal.SIGSEGV


@pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are looked at on Linux")
def test_a_time_limit_survives_a_signal_stack_that_is_gone():
    done = process(DANGLING + HANG)
    assert (done.returncode, done.stdout) == (0, "probe took more than 0.2 s\n")


@pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are looked at on Linux")
def test_ctrl_c_survives_a_signal_stack_that_a_hook_took_away():
    done = process(HOOK + "\n    ".join(DANGLING.strip().splitlines()) + CTRL_C)
    assert (done.returncode, done.stdout) == (0, "interrupted\n")


@pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are looked at on Linux")
def test_a_signal_stack_that_exists_stays():
    stack, room = alarms._Stack(), ctypes.create_string_buffer(1 << 16)
    before = alarms._Stack()
    libc = ctypes.CDLL(None)
    own = alarms._Stack(ctypes.addressof(room), 0, len(room))
    assert libc.sigaltstack(ctypes.byref(own), ctypes.byref(before)) == 0
    try:
        alarms.keep_signal_stack()
        libc.sigaltstack(None, ctypes.byref(stack))
        assert (stack.start, stack.flags) == (own.start, 0)
    finally:
        before.flags = before.flags if before.start else alarms._DISABLE
        libc.sigaltstack(ctypes.byref(before), None)


def test_thousands_of_alarms_at_the_edge_end_by_name_or_not_at_all():
    ended, named = [], []
    for turn in range(3000):
        limit = 1e-5 * (turn % 40 + 1)
        try:
            with waiting_for("npu", "probe", limit):
                spin(limit * (turn % 7) / 3)
        except PluginError as error:
            ended.append(error.what)
            named.append(f"probe took more than {limit:g} s")
    assert 500 < len(ended) < 3000
    assert ended == named


def test_nested_alarms_at_the_edge_end_by_the_name_of_the_one_that_is_due():
    names = set()
    for turn in range(1500):
        outer, inner = 1e-4 * (turn % 11 + 1), 1e-4 * (turn % 7 + 1)
        start = time.monotonic()
        try:
            with waiting_for("a", "outer", outer), waiting_for("b", "inner", inner):
                spin(1.1e-3)
        except PluginError as error:
            names.add(error.who)
            limit = {"a": outer, "b": inner}[error.who]
            assert time.monotonic() - start > limit
    assert names == {"a", "b"}


def test_the_outer_of_two_limits_ends_what_the_inner_one_would_let_go_on():
    start = time.monotonic()
    with (
        pytest.raises(PluginError, match=r"a: outer took more than 0\.2 s"),
        waiting_for("a", "outer", 0.2),
        waiting_for("b", "inner", 30),
    ):
        time.sleep(20)
    assert time.monotonic() - start < 5


def test_an_alarm_of_the_caller_goes_off_in_time():
    def end(number, frame):
        raise TimeoutError("the caller's")

    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        start = time.monotonic()
        with pytest.raises(TimeoutError, match="the caller's"), waiting_for("npu", "probe", 30):
            time.sleep(20)
        assert time.monotonic() - start < 5
        assert signal.getsignal(signal.SIGALRM) is end
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_ticking_alarm_of_the_caller_goes_on_during_and_after():
    ticks = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: ticks.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with (
            pytest.raises(PluginError, match=r"probe took more than 0\.4 s"),
            waiting_for("npu", "probe", 0.4),
        ):
            spin(20)
        during = len(ticks)
        spin(0.3)
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert during >= 2
    assert len(ticks) >= during + 2


def test_a_limit_is_kept_where_its_first_alarm_is_swallowed(monkeypatch):
    class Swallows:
        def __del__(self):
            spin(0.5)  # Python ignores what is raised here.

    def hook():
        with waiting_for("npu", "probe", 0.2):
            Swallows()
            time.sleep(20)

    monkeypatch.setattr(sys, "unraisablehook", lambda args: None)
    with pytest.raises(PluginError, match=r"probe took more than 0\.2 s"):
        hook()


def test_an_alarm_is_not_raised_where_things_are_put_back():
    alarm = Alarm(60)
    alarm._due = 0
    alarm._ring(signal.SIGALRM, SimpleNamespace(f_globals={"__name__": "contextlib"}))
    with pytest.raises(Overdue):
        alarm._ring(signal.SIGALRM, SimpleNamespace(f_globals={"__name__": "plugin"}))


def test_without_a_handler_that_python_can_put_back_there_is_no_alarm(monkeypatch):
    # As where Python is embedded in a program that has set one.
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    assert not Alarm.possible()
    monkeypatch.undo()
    assert Alarm.possible()
