"""Checks: what would not load or not run, found from the file."""

from random import Random

import pytest
import torch
from attrs import define
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from hostile import EXAMPLES, programs
from models import nets
from torch import nn
from toys.accelerator import Accelerator

from etdev import CPU, Device, Lowerer, hookimpl
from etdev.errors import ArtifactError
from etdev.pte.read import compiled, read
from etdev.runtime.check import check, notes, unloaded

CUDA0 = Device("cuda", 0)
X = (torch.randn(2, 2), torch.randn(2, 2))
NO_BACKEND = (
    "the runtime has no backend FakeAccelerator; "
    "run it with one that is built with it, or lower without its plugin"
)
NAME_IT = "name it, as in --target cpu,cuda:0, or lower for one of these"


class Add(nn.Module):
    def forward(self, x, y):
        return x + y


def test_a_program_that_runs_has_no_problems(mlp_lowered, mlp_pte):
    plugins = Lowerer(["cpu"]).plugins
    assert check(mlp_pte, plan=mlp_lowered.plan, plugins=plugins) == []


def test_a_missing_backend_is_named(on_cuda):
    problems = check(on_cuda, [CPU, CUDA0])
    assert f"method forward: {NO_BACKEND}" in problems
    assert not any("planned on" in problem for problem in problems)


def test_devices_that_the_target_lacks_are_named(on_cuda):
    problems = check(on_cuda, [CPU])
    assert f"method forward: memory is planned on cuda:0, the target has cpu; {NAME_IT}" in problems
    assert (
        f"method forward: delegate 0 (FakeAccelerator) is on cuda:0, not on cpu; {NAME_IT}"
        in problems
    )


def test_a_label_that_the_payload_contradicts_is_named(tmp_path):
    inner = to_edge(torch.export.export(Add(), X)).exported_program()
    delegate = to_backend("XnnpackBackend", inner, [CompileSpec("target_device", b"cuda:0")])

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.delegate = delegate

        def forward(self, x, y):
            return torch.cumsum(self.delegate(x, y), 0)

    path = Lowerer([]).lower(Outer(), X).save(tmp_path / "lie.pte")
    assert check(path, [CPU, CUDA0], plugins=Lowerer(["cpu"]).plugins)[-1] == (
        "method forward: delegate 0 (XnnpackBackend) is labelled cuda:0, but its payload uses cpu"
    )


def test_a_payload_without_a_delegate_in_it_is_named(mlp_pte, tmp_path):
    data, path = mlp_pte.read_bytes(), tmp_path / "zero.pte"
    payload = compiled(mlp_pte)["forward"][0].payload
    assert data.count(payload) == 1
    path.write_bytes(data.replace(payload, bytes(len(payload))))
    assert check(str(path), plugins=Lowerer(["cpu"]).plugins) == [
        "method forward: delegate 0 (XnnpackBackend) is damaged: its payload is not one of "
        "XNNPACK's flatbuffers; lower the model again"
    ]


def test_a_spec_that_the_label_contradicts_is_named(on_cuda, tmp_path):
    data, path = on_cuda.read_bytes(), tmp_path / "spec.pte"
    assert data.count(b"cuda:0") == 1
    targets = [CPU, CUDA0, Device("cuda", 1)]
    for text, problem in {
        b"cuda:1": "is labelled cuda:0, but its target_device spec is cuda:1",
        b"cuda:x": "has a target_device spec that can't be kept: cannot read 'cuda:x'",
    }.items():
        path.write_bytes(data.replace(b"cuda:0", text))
        line = f"method forward: delegate 0 (FakeAccelerator) {problem}"
        assert line in check(path, targets)
        assert not any("target_device" in problem for problem in check(on_cuda, targets))


def test_a_missing_ptd_is_named(tmp_path):
    config = ExecutorchBackendConfig(external_constants=True)
    path = Lowerer([]).lower(*nets.mlp()).save(tmp_path / "mlp.pte", config)
    (data,) = tmp_path.glob("*.ptd")
    assert data.name == "mlp._default_external_constant.ptd"
    assert check(path) == []
    assert check(path, data=data) == []
    data.unlink()
    assert check(path) == [f"it keeps constants in a .ptd that is not in {tmp_path}"]
    assert check(path, data=data)[0].startswith(f"{data}: can't be read (")


def test_differences_from_a_plan_are_listed_with_both_sides(mlp_pte):
    other = Lowerer([]).plan(*nets.mlp())
    assert check(mlp_pte, plan=other) == [
        "method forward, delegate 0: planned none, found XnnpackBackend on cpu",
        "method forward, delegate 1: planned none, found XnnpackBackend on cpu",
    ]


def test_a_program_etdev_did_not_make_is_checked_too(tmp_path):
    path = tmp_path / "plain.pte"
    path.write_bytes(to_edge(torch.export.export(Add(), X)).to_executorch().buffer)
    assert check(path) == []


def test_where_python_plans_memory_otherwise_is_noted(on_cuda, mlp_pte):
    assert notes(mlp_pte) == []
    assert notes(on_cuda) == [
        "method forward: memory is planned on cuda:0; executorch.runtime, the Python loader that "
        "etdev run uses, plans all memory on the host, so load it with ExecuTorch's Module"
    ]


class FakeNative(BackendDetails):
    """Stands in for a backend whose delegates are shared libraries, such as AOTInductor's."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        store = NamedDataStore()
        store.add_named_data("forward_so_blob", b"\x7fELF code", 1, None)
        return PreprocessResult(b"\x7fELF", data_store_output=store.get_named_data_store_output())


@define(eq=False)
class Native(Accelerator):
    name: str = "native"
    ops: tuple = ("add.Tensor",)
    backend: str = "FakeNative"

    @hookimpl
    def payload_data(self, backend_id, payload):
        return ["forward_so_blob"] if backend_id == "FakeNative" else None


def test_native_code_is_noted_with_its_delegate(tmp_path):
    lowerer = Lowerer([Native()])
    path = lowerer.lower(Add(), X).save(tmp_path / "native.pte")
    name = "method forward: delegate 0 (FakeNative)"
    assert notes(path, lowerer.plugins) == [
        f"{name} runs native code of this file, in its payload, forward_so_blob"
    ]
    assert notes(path) == [
        f"{name} runs native code of this file, in its payload",
        "forward_so_blob is a shared library, and no plugin here knows whose",
    ]


def test_a_file_of_another_schema_is_refused_by_every_reader(tmp_path, mlp_pte):
    path = tmp_path / "other.pte"
    data = mlp_pte.read_bytes()
    assert data[4:8] == b"ET12"
    path.write_bytes(data[:4] + b"ET99" + data[8:])
    for reader in (check, read, notes):
        with pytest.raises(ArtifactError, match="has schema b'ET99', and ExecuTorch here reads"):
            reader(path)


def test_a_missing_kernel_is_named_with_the_dtypes_it_is_called_with(tmp_path, mlp_pte):
    path = tmp_path / "kernel.pte"
    data = Lowerer([]).lower(Add(), X).save(tmp_path / "add.pte").read_bytes()
    assert data.count(b"aten::add") == 1
    path.write_bytes(data.replace(b"aten::add", b"aten::xxx"))
    assert check(path) == [
        "method forward: the runtime has no kernel aten::xxx.out (float32); "
        "run it with one that has it, or give the op to a plugin"
    ]


def test_native_code_is_not_loaded_and_so_does_not_pass_here(tmp_path, monkeypatch):
    lowerer = Lowerer([Native()])
    path = lowerer.lower(Add(), X).save(tmp_path / "native.pte")
    nothing = "etdev.runtime.runners.PythonRunner.missing", lambda *_: ([], [])
    monkeypatch.setattr(*nothing)
    loading = "etdev.runtime.runners.PythonRunner.load"
    monkeypatch.setattr(loading, lambda *_: pytest.fail("it was loaded"))
    why = "loading it would run native code of the file"
    assert check(path, [CPU], plugins=lowerer.plugins) == []
    assert unloaded(read(path), here=False) == {"forward": why}
    assert check(path, plugins=lowerer.plugins) == [
        f"method forward: was not loaded: {why}; name the target's devices to check the rest"
    ]


def passed(path, data=None):
    """Return True if `check` passes a file."""
    try:
        return not check(path, data=data)
    except ArtifactError:
        return False


@pytest.mark.fuzz
def test_what_passes_here_loads_here_and_lacks_no_kernel(tmp_path, mlp_pte):
    """Damaged, spliced, edited and foreign files, in a loader that shares nothing with `check`."""
    random, files = Random(EXAMPLES), [*programs.originals(tmp_path, EXAMPLES > 0), mlp_pte]
    assert len(files) == (5 if EXAMPLES else 3)
    assert all(map(passed, files))
    sound, good, count = [file.read_bytes() for file in files], list(files), EXAMPLES or 40
    for number in range(count):
        path = tmp_path / f"{number}.pte"
        path.write_bytes(programs.changed(random, sound))
        good += [path] if passed(path) else []
    # Damage that the loader can't see, and damage that it must.
    assert count / 5 < len(good) < count * 4 / 5
    loaded, lacking, log = programs.loaded([(path, None) for path in good])
    assert (loaded, lacking) == (good, []), log[-2000:]


@pytest.mark.fuzz
def test_what_passes_with_its_data_loads_with_them(tmp_path):
    config = ExecutorchBackendConfig(external_constants=True)
    path = Lowerer([]).lower(*nets.mlp()).save(tmp_path / "mlp.pte", config)
    (data,) = tmp_path.glob("*.ptd")
    other = Lowerer([]).lower(nn.Linear(2, 2), (X[0],)).save(tmp_path / "other.pte", config)
    (others,) = {*tmp_path.glob("*.ptd")} - {data}
    content, random, files = data.read_bytes(), Random(0), [(path, data), (other, others)]
    files += [(path, others), (other, data)]
    for number in range(EXAMPLES // 10 or 4):
        damaged = bytearray(content)
        damaged[random.randrange(0, 600)] = random.randrange(256)
        (tmp_path / f"{number}.ptd").write_bytes(damaged[: random.choice((len(content), 300))])
        files.append((path, tmp_path / f"{number}.ptd"))
    good = [file for file in files if passed(*file)]
    assert good[:2] == files[:2]
    assert not {*files[2:4]} & {*good}
    loaded, _, log = programs.loaded(good)
    assert loaded == [path for path, _ in good], log[-2000:]
