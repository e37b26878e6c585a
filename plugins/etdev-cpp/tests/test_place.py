"""Targets: an emulated aarch64, and a host behind a real OpenSSH server on the loopback address."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import threading
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import torch
from attrs import evolve
from etdev_cpp import build, place, runner
from support.emulator import PI, emulated
from support.models import nets
from support.shell import MLP, fails, invoke, succeeds
from support.toys.accelerator import Accelerator
from torch import nn

from etdev import Device, Lowerer, VerifyError
from etdev.errors import PluginError, RunError
from etdev.pte.read import read
from etdev.runtime.check import check
from etdev.runtime.run import run_series
from etdev.runtime.runners import Program, on_target
from etdev.schema.target import Target

PACKAGE = str(Path(find_spec("executorch").submodule_search_locations[0]))
REGISTRY = """
unlisted = "first"

[plugins.cpu]

[targets.pi]
triple = "aarch64-linux-gnu"
plugins = ["cpu"]
"""


class Counter(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x.softmax(-1) * self.calls


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "registry.toml").write_text(REGISTRY)
    return tmp_path


@emulated
def test_a_file_is_verified_on_two_models_of_processor(registry):
    told = succeeds(f"lower {MLP} -o net.pte --target pi --lock etdev.lock")
    assert "verified over 20 calls in cortex-a53 (qemu), cortex-a76 (qemu) within" in told
    first, second = json.loads(Path("etdev.lock").read_text())["setup"]["target"]
    assert (first["name"], first["processor"]) == ("cortex-a53 (qemu)", "cortex-a53")
    assert first["triple"] == "aarch64-linux-gnu"
    assert second["wheel"].startswith(f"executorch {version('executorch').partition('+')[0]} ")
    here = fails(f"lower {MLP} -o other.pte --plugin cpu --locked")
    assert "the list of processors that verify was" in here
    other = fails(f"run net.pte --target pi --cpu cortex-a99 --check {MLP}")
    assert "qemu-aarch64 has no processor cortex-a99" in other
    ran = succeeds(f"run net.pte --target pi --check {MLP}")
    assert "latency: not told, since an emulator ran it" in ran
    loads, note, _ = succeeds("check net.pte --target pi").splitlines()
    assert loads == "net.pte: loads on qemu"
    assert note.startswith("net.pte: note: name cortex-a53 (qemu), triple aarch64-linux-gnu, wheel")
    assert "glibc 2." in note
    sizes = json.loads(succeeds("size net.pte --target pi --json"))
    assert sizes["missing"] == []
    assert "executorch-" in sizes["link"][0]
    # Its library is in ExecuTorch's wheel for aarch64, but it finds no OpenVINO there.
    refused = fails(f"lower {MLP} -o other.pte --target pi --plugin openvino")
    assert "openvino: needs OpenvinoBackend, which the target's ExecuTorch lacks" in refused


@emulated
def test_a_processor_that_the_emulator_lacks_is_named_before_anything_is_lowered():
    for model, cure in (
        ("cortexa76", "did you mean cortex-a76?"),
        ("x", "name one that qemu-aarch64 -cpu help lists"),
    ):
        with pytest.raises(RunError, match=f"qemu-aarch64 has no processor {model}") as caught:
            on_target(Target("aarch64-linux-gnu", f"qemu:{model}"))
        assert caught.value.cure == cure


@emulated
def test_a_sysroot_without_a_c_library_is_named(mlp_lowered):
    with pytest.raises(RunError, match="Could not open '/lib/ld-linux") as caught:
        mlp_lowered.verify(target=evolve(PI, on="qemu:max", sysroot="/nowhere"))
    assert caught.value.cure == "see that /nowhere has the C library of its programs"


@emulated
@pytest.mark.parametrize(
    ("module", "inputs", "shapes"),
    [
        (Counter(), (torch.randn(2, 3),), None),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), (torch.randn(2, 3, 8, 8),),
         ({0: torch.export.Dim("batch", min=1, max=5)},)),
    ],
    ids=["state", "dynamic"],
)  # fmt: skip
def test_state_and_dynamic_sizes_are_verified_there(module, inputs, shapes):
    lowered = Lowerer(["cpu"]).lower(module, inputs, dynamic_shapes=shapes)
    known = lowered.verify(target=PI, strict=True)
    assert known.runners == ("cortex-a53 (qemu)", "cortex-a76 (qemu)")
    assert known.calls >= 3


@emulated
def test_a_wrong_value_there_is_found(mlp_lowered, monkeypatch):
    def off(*args, **kwargs):
        outcome = run_series(*args, **kwargs)
        if "qemu" in kwargs["runner"].name:
            for result in outcome.values:
                result.outputs[0].add_(1)
        return outcome

    monkeypatch.setattr("etdev.verify.verifier.run_series", off)
    with pytest.raises(VerifyError, match=r"in runner cortex-a53 \(qemu\)"):
        mlp_lowered.verify(target=PI)


def test_a_compiler_or_an_emulator_that_is_missing_is_named_with_the_line_that_installs_it(
    monkeypatch,
):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    made = place.Place(PI, "cortex-a53")
    with pytest.raises(
        RunError, match="a C\\+\\+ compiler for it is missing: aarch64-"
    ) as compiler:
        made.compiler()
    assert compiler.value.cure == "apt install g++-aarch64-linux-gnu"
    with pytest.raises(RunError, match="qemu-aarch64 is not installed") as emulator:
        made.command(Path("runner"))
    assert emulator.value.cure == "apt install qemu-user"


@emulated
@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-linux-gnu"])
def test_other_names_of_a_processor_find_its_compiler_wheel_and_c_library(triple):
    known, other = (place.Place(Target(name), "cortex-a53") for name in (PI.triple, triple))
    program = Path("runner")
    assert (known.compiler(), known.command(program)) == (other.compiler(), other.command(program))
    assert known.wheel() == other.wheel()


@emulated
def test_a_program_of_another_processor_is_no_program_of_this_machine(mlp_lowered):
    with pytest.raises(RunError, match="doesn't start: Exec format error") as caught:
        mlp_lowered.verify(target=evolve(PI, on="local"))
    assert caught.value.cure == "see that it is a program of this machine"


def test_a_folder_without_executorch_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"has no include/ and lib/ of ExecuTorch"):
        place.Place(Target("aarch64-linux-gnu", executorch=str(tmp_path))).wheel()


HERE = f"{platform.machine()}-linux-gnu"


@pytest.fixture
def box():
    if not shutil.which(f"{HERE}-g++"):
        pytest.skip(f"{HERE}-g++ is not installed")
    yield Target(HERE, on="ssh:box", executorch=PACKAGE)
    runner._runner_at.cache_clear()


def test_a_file_is_verified_on_a_host(ssh, box, mlp_lowered, mlp_pte):
    known = mlp_lowered.verify(target=box, strict=True)
    assert known.runners == ("box",)
    assert known.calls == mlp_lowered.verify().calls
    (own,) = on_target(box)
    assert own.facts["processor"].startswith(platform.machine())
    # Once: the runner with the libraries, and each program until the runner is closed.
    assert len(list((ssh.folder / "cache/etdev/runners").iterdir())) == 1
    assert len(list(ssh.temporary.iterdir())) == 1
    own.close()
    assert list(ssh.temporary.iterdir()) == []


def test_a_lost_host_is_a_named_error(ssh, box, mlp_lowered, monkeypatch):
    (own,) = on_target(box)
    for client in psutil.Process().children():
        if client.name() == "ssh":
            client.kill()
    assert mlp_lowered.verify(target=box, strict=True).runners == ("box",)
    ssh.know("other")
    own.close()
    with pytest.raises(RunError, match="ssh failed: Host key verification failed") as caught:
        mlp_lowered.verify(target=box)
    assert (caught.value.who, caught.value.cure.startswith("try ssh ")) == ("box", True)


def _programs(server):
    """The processes of a server's host that have its runner."""
    folder = str(server.folder / "cache")
    return [own for own in psutil.process_iter(["exe"]) if folder in str(own.info["exe"])]


def test_a_connection_that_breaks_in_a_call_is_named_and_no_program_is_left(ssh, box, mlp_pte):
    (own,) = on_target(box)
    (method,) = read(mlp_pte).methods
    server, there = psutil.Process(ssh._process.pid), []

    def cut():
        # Until the program is there, and for a part of the call.
        while not own._folders:
            time.sleep(0.1)
        time.sleep(1)
        there.extend(_programs(ssh))
        for session in server.children():
            for each in (*session.children(), session):
                if each.name().startswith("sshd"):
                    each.kill()

    threading.Thread(target=cut).start()
    with pytest.raises(RunError, match="the connection was lost: the process ") as caught:
        own.call(Program.of(mlp_pte, [method]), [("forward", nets.mlp()[1])], 10**9, 60)
    assert (caught.value.who, caught.value.cure) == ("box", "try ssh box true")
    assert len(there) == 1
    assert psutil.wait_procs(there, 10)[1] == []
    own.close()


def test_a_program_that_crashes_there_is_not_taken_for_a_lost_connection(ssh, box, mlp_pte):
    (own,) = on_target(box)
    (method,) = read(mlp_pte).methods

    def crash():
        while not own._folders:
            time.sleep(0.1)
        time.sleep(1)
        for program in _programs(ssh):
            program.send_signal(signal.SIGSEGV)

    threading.Thread(target=crash).start()
    found = own.call(Program.of(mlp_pte, [method]), [("forward", nets.mlp()[1])], 10**9, 60)
    assert found.failure.startswith("the process died of SIGSEGV")
    own.close()


@pytest.fixture
def small():
    """Return a function that mounts a file system of a few pages on a folder."""
    mounted = []

    def mount(folder):
        folder.mkdir(exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(folder)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("name", ["cache", "temporary"])
def test_a_full_disk_there_is_a_named_error_and_nothing_is_left(name, ssh, box, small, mlp_lowered):
    folder = small(ssh.folder / name)
    with pytest.raises(RunError) as caught:
        mlp_lowered.verify(target=box)
    assert (caught.value.who, caught.value.cure) == ("box", "make room there")
    assert caught.value.what.startswith("its disk is full: tar: ")
    if name == "temporary":
        on_target(box)[0].close()
    assert [file for file in folder.rglob("*") if file.is_file()] == []
    assert [own for own in psutil.Process().children() if own.name() == "ssh"] == []


def test_a_full_cache_here_is_a_named_error(small, tmp_path, monkeypatch):
    folder = small(tmp_path / "cache")
    for module in (place, build):
        monkeypatch.setattr(module, "user_cache_path", lambda *_, **__: folder)
    # In place of pip, which would ask the network.
    download = "head -c 99999 /dev/zero > {}/net.whl"
    monkeypatch.setattr(place, "_pip", lambda to: ("sh", "-c", download.format(to)))
    for make in (lambda: place.downloaded(PI.triple), build.runner):
        with pytest.raises(RunError, match=r"can't be written: .*No space left") as caught:
            make()
        assert caught.value.cure == "make that folder writable, and room on its disk"
    assert [file for file in folder.rglob("*") if file.is_file()] == []


def test_a_runner_that_does_not_start_there_is_a_named_error(ssh, box, mlp_lowered):
    (own,) = on_target(box)
    own.close()
    (program,) = (ssh.folder / "cache/etdev/runners").rglob("runner")
    program.chmod(0o600)
    try:
        with pytest.raises(RunError, match=r"runner: .*Permission denied") as caught:
            mlp_lowered.verify(target=box)
    finally:
        program.chmod(0o700)
    assert (caught.value.who, caught.value.cure[:8]) == ("box", "try ssh ")


def test_an_older_executorch_there_is_refused(tmp_path, box):
    for name in ("include", "lib"):
        (tmp_path / name).symlink_to(Path(PACKAGE) / name)
    (tmp_path / "version.py").write_text('__version__ = "1.0.0+cpu"\n')
    with pytest.raises(RunError) as caught:
        on_target(evolve(box, executorch=str(tmp_path)))
    own = version("executorch").partition("+")[0]
    what = f"{tmp_path} is ExecuTorch 1.0.0, older than {own}, which lowers"
    assert (caught.value.who, caught.value.what) == ("target", what)


def test_the_models_of_a_target_are_those_of_its_emulator():
    assert [each.name for each in place.Place.of(PI)] == ["cortex-a53 (qemu)", "cortex-a76 (qemu)"]
    assert Target("aarch64-linux-gnu", on="qemu:max").models == ("max",)


@emulated
def test_what_a_target_lacks_is_left_out_or_refused_before_compiling(registry, monkeypatch):
    monkeypatch.setattr("etdev.delegate.compile.Compiler.compile", None)
    (registry / "registry.toml").write_text(
        REGISTRY.replace('plugins = ["cpu"]', 'memory = "10 kB"')
    )
    refused = fails(f"lower {MLP} -o net.pte --target pi")
    assert refused.startswith("target: has 9.8 KiB of memory, and the weights alone take 1")
    x = torch.randn(2, 8)
    on_cuda = Accelerator(ops=("addmm.default",), device=Device("cuda", 0))
    with pytest.raises(PluginError, match="needs the device cuda:0, which the target lacks"):
        Lowerer([on_cuda], target=PI).plan(torch.export.export(nn.Linear(8, 8), (x,)))


@emulated
def test_a_plugin_whose_backend_the_target_lacks_is_left_out_with_a_line(registry):
    pytest.importorskip("openvino", reason="openvino is not installed")
    (registry / "registry.toml").write_text(REGISTRY.replace('plugins = ["cpu"]', ""))
    done = invoke(f"lower {MLP} -o net.pte --target pi")
    assert done.exit_code == 0
    line = "openvino is left out: it needs OpenvinoBackend, which the target's ExecuTorch lacks"
    assert line in done.stderr
    assert {d.backend_id for m in read("net.pte").methods for d in m.delegates} == {
        "XnnpackBackend"
    }


def test_a_file_that_takes_more_memory_than_the_target_has_is_a_problem(mlp_pte, box):
    (problem,) = check(mlp_pte, place=evolve(box, memory="10 kB"))
    assert problem.startswith("it takes ")
    assert problem.endswith("of memory, and the target has 9.8 KiB")


# Nothing here has a device, so this adb is a stand-in: a shell on this machine.
ADB = """#!/bin/sh
[ "$1 $2" = "-s emulator-5554" ] || { echo "error: device '$2' not found" >&2; exit 1; }
[ "$3 $4" = "shell -T" ] || exit 2
shift 4
exec sh -c "$*"
"""


@pytest.fixture
def adb(tmp_path, monkeypatch):
    """A stand-in for adb, and the folder in which its device keeps what it gets."""
    (tmp_path / "adb").write_text(ADB)
    (tmp_path / "adb").chmod(0o755)
    device = tmp_path / "device"
    device.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(device))
    yield device
    runner._runner_at.cache_clear()


def test_a_file_is_verified_on_a_device_behind_a_stand_in_for_adb(adb, box, mlp_lowered):
    there = evolve(box, on="adb:emulator-5554")
    assert mlp_lowered.verify(target=there, strict=True).runners == ("emulator-5554",)
    assert [file.name for file in (adb / "etdev").iterdir()] == ["runners"]
    with pytest.raises(RunError, match="adb failed: error: device 'gone' not found") as caught:
        on_target(evolve(box, on="adb:gone"))
    assert caught.value.cure == "try adb -s gone shell -T true"


def test_this_machine_may_be_a_target_with_an_executorch_of_its_own(box, mlp_lowered):
    assert mlp_lowered.verify(target=evolve(box, on="local"), strict=True).runners == ("local",)
