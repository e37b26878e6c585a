"""This machine as a target: times, outputs, and programs that crash, hang or are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from attrs import evolve
from etdev_tune.exchange import Failure, Request, Result
from etdev_tune.runners import Local
from support.models import nets
from support.models.small import Function

from etdev import Lowerer
from etdev.errors import RunError
from etdev.runtime.run import run

MODULE, INPUTS = nets.mlp()


class Counter(torch.nn.Module):
    """Adds up what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 1


@pytest.fixture(scope="module")
def local() -> Iterator[Local]:
    runner = Local()
    yield runner
    runner.close()


def of(runner: Local, request: Request) -> Result:
    result = runner.run(request)
    assert isinstance(result, Result), result
    return result


def test_times_and_outputs_come_back(local: Local, mlp_pte: Path) -> None:
    sets = tuple((torch.randn_like(INPUTS[0]),) for _ in range(3))
    request = Request(mlp_pte, sets, outputs=True, repetitions=7, timed=(0, 2))
    result = of(local, request)
    assert [len(times) for times in result.times_ns] == [7, 0, 7]
    assert all(0 < time < 1e9 for times in result.times_ns for time in times)
    for (output,), inputs in zip(result.outputs, sets, strict=True):
        assert torch.equal(output, run(mlp_pte, inputs).outputs[0])
        torch.testing.assert_close(output, MODULE(*inputs), atol=1e-5, rtol=1e-5)


def test_nothing_is_timed_or_returned_unless_asked_for(local: Local, mlp_pte: Path) -> None:
    result = of(local, Request(mlp_pte, (INPUTS,), timed=()))
    assert (result.times_ns, result.outputs) == (((),), ())


def test_calls_end_with_their_time_but_three_are_made(local: Local, mlp_pte: Path) -> None:
    result = of(local, Request(mlp_pte, (INPUTS,), repetitions=10**6, seconds=0.0))
    assert len(result.times_ns[0]) == 3
    result = of(local, Request(mlp_pte, (INPUTS,), repetitions=10**6, seconds=0.05))
    # What is between calls of microseconds counts, too.
    assert 0.025e9 < sum(result.times_ns[0]) < 0.5e9


def test_state_is_carried_from_set_to_set_and_starts_afresh(local: Local, tmp_path: Path) -> None:
    pte = Lowerer([]).lower(Counter(), (torch.ones(2),)).save(tmp_path / "counter.pte")
    sets = ((torch.tensor([1.0, 2.0]),), (torch.tensor([10.0, 20.0]),))
    for _ in range(2):
        result = of(local, Request(pte, sets, outputs=True))
        values = [call[0].tolist() for call in result.outputs]
        assert values == [[1.0, 2.0], [11.0, 22.0]]


def test_timing_starts_warm_and_in_the_first_state(local: Local, tmp_path: Path) -> None:
    class Ends(torch.nn.Module):
        """Has room for ten calls."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)
            return x.index_select(0, self.calls)

    pte = Lowerer([]).lower(Ends(), (torch.ones(11),)).save(tmp_path / "ends.pte")
    request = Request(pte, ((torch.ones(11),),), repetitions=7, warmup=3)
    assert len(of(local, request).times_ns[0]) == 7
    assert isinstance(local.run(evolve(request, repetitions=8)), Failure)


def test_short_calls_are_warmed_up_for_some_time(local: Local, mlp_pte: Path) -> None:
    start = time.monotonic()
    of(local, Request(mlp_pte, (INPUTS,), repetitions=3, warmup_s=1.0))
    assert time.monotonic() - start > 1


@pytest.mark.suite
def test_torch_has_no_threads_beside_the_programs() -> None:
    words = "from etdev_tune.process.facts import use_threads as use; use(2)"
    ask = f"import torch; torch.set_num_threads(2); {words}; print(torch.get_num_threads())"
    assert subprocess.check_output([sys.executable, "-c", ask]) == b"1\n"


def test_memory_is_what_the_program_adds(local: Local, tmp_path: Path) -> None:
    def growth(width: int) -> int:
        module = torch.nn.Linear(width, width)
        inputs = (torch.randn(1, width),)
        pte = Lowerer(["cpu"]).lower(module, inputs).save(tmp_path / f"{width}.pte")
        memory = of(local, Request(pte, (inputs,))).memory_bytes
        assert memory is not None
        return memory

    # XNNPACK packs the weights while it reads them from the file, so they are there twice. A run
    # also pages in 5 MB of libraries, mostly after that, so few weights would hide behind these.
    weights = 4 * 2048 * 2048
    assert 1.5 * weights < growth(2048) - growth(16) < 2.5 * weights


def test_a_hang_is_a_finding(local: Local, mlp_pte: Path) -> None:
    request = Request(mlp_pte, (INPUTS,), repetitions=10**9, seconds=60, timeout_s=0.5)
    assert local.run(request) == Failure("hang", "took longer than 0.5 s")
    assert of(local, Request(mlp_pte, (INPUTS,))).times_ns


def test_a_refusal_is_a_finding(local: Local, mlp_pte: Path, tmp_path: Path) -> None:
    rows = Function(lambda x, index: x[index])
    pte = Lowerer([]).lower(rows, (torch.ones(3), torch.tensor([0]))).save(tmp_path / "i.pte")
    failure = local.run(Request(pte, ((torch.ones(3), torch.tensor([7])),)))
    assert isinstance(failure, Failure)
    assert failure.kind in ("refused", "crash")
    assert failure.detail
    assert of(local, Request(mlp_pte, (INPUTS,))).times_ns


def test_a_crash_is_a_finding_and_one_thread_has_one_processor(local: Local, mlp_pte: Path) -> None:
    processors = []

    def kill() -> None:
        time.sleep(1.0)
        runs = [child for child in psutil.Process().children(recursive=True) if _is_run(child)]
        processors.extend(run.cpu_affinity() for run in runs)
        runs[0].send_signal(signal.SIGSEGV)

    local.fingerprint()
    thread = threading.Thread(target=kill)
    thread.start()
    failure = local.run(Request(mlp_pte, (INPUTS,), repetitions=10**9, seconds=20))
    thread.join()
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.detail.split(" (")[0]) == ("crash", "died of SIGSEGV")
    assert [len(allowed) for allowed in processors] == [1]
    assert of(local, Request(mlp_pte, (INPUTS,))).times_ns


def _is_run(process: psutil.Process) -> bool:
    """A run's process is a fork of a worker's, which is a child of ours."""
    parent = process.parent()
    return parent is not None and parent.ppid() == os.getpid() and "-u" in process.cmdline()


def test_a_fingerprint_names_what_times_depend_on(local: Local) -> None:
    facts = local.fingerprint()
    assert {"cpu", "cores", "os", "executorch", "backends"} <= facts.keys()
    assert "XnnpackBackend" in facts["backends"]


@pytest.mark.suite
def test_a_fingerprint_leaves_no_backend_loaded_for_the_runs() -> None:
    pytest.importorskip("openvino")
    runner = Local()
    assert "OpenvinoBackend" in runner.fingerprint()["backends"]
    workers = [p for p in psutil.Process().children() if "-u" in p.cmdline()]
    mapped = [each.path for worker in workers for each in worker.memory_maps()]
    assert any("libexecutorch.so" in path for path in mapped)
    assert not [path for path in mapped if "libopenvino_c" in path]
    runner.close()


@pytest.mark.suite
def test_nothing_stays_behind(mlp_pte: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    runner = Local()
    runner.run(Request(mlp_pte, (INPUTS,)))
    assert [path.name[:13] for path in tmp_path.iterdir()] == ["etdev-worker-"]
    workers = psutil.Process().children(recursive=True)
    runner.close()
    psutil.wait_procs(workers, timeout=5)
    assert list(tmp_path.iterdir()) == []


ENDLESS = {"repetitions": 10**9, "seconds": 60}


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "-u" in child.cmdline()]


@pytest.fixture
def own() -> Iterator[tuple[Local, psutil.Process]]:
    """A runner of its own, and its worker."""
    runner, before = Local(), workers()
    runner.fingerprint()
    (worker,) = [each for each in workers() if each not in before]
    yield runner, worker
    runner.close()


@pytest.mark.suite
def test_a_lost_worker_is_named_and_the_next_run_starts_another(own, mlp_pte) -> None:
    runner, worker = own
    runs = []

    def kill() -> None:
        runs.extend(worker.children())
        worker.kill()

    threading.Timer(1.0, kill).start()
    with pytest.raises(RunError, match=r"lost while running .*died of SIGKILL") as lost:
        runner.run(Request(mlp_pte, (INPUTS,), repetitions=10**9, seconds=3))
    assert "run it again" in lost.value.cure
    assert isinstance(runner.run(Request(mlp_pte, (INPUTS,))), Result)
    # Its result has no reader, so that the run ends, too.
    assert [len(group) for group in psutil.wait_procs(runs, timeout=30)] == [1, 0]


@pytest.mark.suite
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_nothing(own, mlp_pte) -> None:
    runner, worker = own
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        runner.run(Request(mlp_pte, (INPUTS,), **ENDLESS))
    assert not worker.is_running()
