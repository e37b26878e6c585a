"""Checks: what would not load or not run, found from the file."""

import subprocess
import sys
from random import Random

import pytest
import torch
from attrs import define
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from support.models import nets
from support.models.small import Function
from support.toys.accelerator import Accelerator
from torch import nn

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
NAME_IT = "name it, as in --device cpu,cuda:0, or lower for one of these"


ADD = Function(torch.add)


class OtherAccelerator(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(processed_bytes=b"other")


def test_a_program_that_runs_has_no_problems(mlp_lowered, mlp_pte):
    plugins = Lowerer(["cpu"]).plugins
    assert check(mlp_pte, plan=mlp_lowered.plan, plugins=plugins) == []


def test_a_missing_backend_is_named(on_cuda):
    problems = check(on_cuda)
    assert f"method forward: {NO_BACKEND}" in problems
    assert not any("planned on" in problem for problem in problems)


def test_a_build_machine_needs_no_runtime_of_the_targets_devices(on_cuda):
    assert check(on_cuda, [CPU, CUDA0]) == []
    assert unloaded(read(on_cuda), here=False) == {
        "forward": "it needs cuda:0; load it there, with a runtime that has FakeAccelerator"
    }


def test_devices_that_the_target_lacks_are_named(on_cuda):
    problems = check(on_cuda, [CPU])
    assert f"method forward: memory is planned on cuda:0, the target has cpu; {NAME_IT}" in problems
    assert (
        f"method forward: delegate 0 (FakeAccelerator) is on cuda:0, not on cpu; {NAME_IT}"
        in problems
    )


def test_a_label_that_the_payload_contradicts_is_named(tmp_path):
    inner = to_edge(torch.export.export(ADD, X)).exported_program()
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
        "it is not as it was written: some of its bytes have changed; copy it again, or lower it "
        "again",
        "method forward: delegate 0 (XnnpackBackend) is damaged: its payload is not one of "
        "XNNPACK's flatbuffers; lower the model again",
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
    told = f"it keeps constants in a .ptd that is not in {tmp_path}; put it there, or name it with "
    assert check(path) == [told + "--data"]
    assert check(path, data=data)[0].startswith(f"{data}: can't be read (")


def test_differences_from_a_plan_are_listed_with_both_sides(mlp_pte):
    other = Lowerer([]).plan(*nets.mlp())
    assert check(mlp_pte, plan=other) == [
        "method forward, delegate 0: planned none, found XnnpackBackend on cpu",
        "method forward, delegate 1: planned none, found XnnpackBackend on cpu",
    ]


def test_a_program_etdev_did_not_make_is_checked_too(tmp_path):
    path = tmp_path / "plain.pte"
    path.write_bytes(to_edge(torch.export.export(ADD, X)).to_executorch().buffer)
    assert check(path) == []


def test_memory_that_a_loader_has_to_allocate_on_a_device_is_noted(on_cuda, mlp_pte):
    assert notes(mlp_pte) == []
    assert notes(on_cuda) == [
        "method forward: memory is planned on cuda:0; its loader has to allocate it there: "
        "ExecuTorch's Module, or executorch.runtime from 1.5 on in a build with a backend for the "
        "device"
    ]


def test_backends_that_share_a_gpu_are_noted(tmp_path):
    plugins = [
        Accelerator("first", ops=("sin",), device=CUDA0),
        Accelerator("second", ops=("cos",), device=CUDA0, backend="OtherAccelerator"),
    ]
    model = Function(lambda x: x.sin().cos())
    path = Lowerer(plugins).lower(model, X[:1]).save(tmp_path / "two.pte")
    assert notes(path)[-1] == (
        "method forward: FakeAccelerator and OtherAccelerator run on cuda:0, each on a stream of "
        "its own: run them on one, in C++ by a CallerStreamGuard, or values between them may be "
        "read too early"
    )


def test_kernels_that_a_runtime_has_to_load_first_are_noted(tmp_path):
    quantised = torch.ops.quantized_decomposed

    def rounded(x):
        limits = (0.05, 3, -128, 127, torch.int8)
        return quantised.dequantize_per_tensor(quantised.quantize_per_tensor(x, *limits), *limits)

    path = Lowerer([]).lower(Function(rounded), X[:1]).save(tmp_path / "quantised.pte")
    assert any(name.startswith("quantized_") for name in read(path).methods[0].operators)
    assert check(path) == []
    assert notes(path) == ["method forward: load executorch.kernels.quantized for its kernels"]


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
    path = lowerer.lower(ADD, X).save(tmp_path / "native.pte")
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
    data = Lowerer([]).lower(ADD, X).edge.to_executorch().buffer
    assert data.count(b"aten::add") == 1
    path.write_bytes(data.replace(b"aten::add", b"aten::xxx"))
    assert check(path) == [
        "method forward: the runtime has no kernel aten::xxx.out (float32); "
        "run it with one that has it, or give the op to a plugin"
    ]


def test_native_code_is_not_loaded_and_so_does_not_pass_here(tmp_path, monkeypatch):
    lowerer = Lowerer([Native()])
    path = lowerer.lower(ADD, X).save(tmp_path / "native.pte")
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


@pytest.fixture(scope="module")
def sound(tmp_path_factory, mlp_pte):
    """Files of etdev and of plain ExecuTorch."""
    folder = tmp_path_factory.mktemp("sound")
    plain = to_edge({"one": torch.export.export(ADD, X), "two": torch.export.export(ADD, X)})
    (folder / "plain.pte").write_bytes(plain.to_executorch().buffer)
    Lowerer([]).lower(*nets.conv_net()).save(folder / "conv.pte")
    files = [*folder.glob("*.pte"), mlp_pte]
    assert all(check(file) == [] for file in files)
    return [file.read_bytes() for file in files]


# A loader of its own: it shares nothing with the code that it judges.
LOADER = """\
import sys
from etdev.runtime.loading import load_runtime
load_runtime()
from executorch.runtime import Runtime
for path in sys.argv[1:]:
    program = Runtime.get().load_program(path)
    for name in program.method_names:
        program.load_method(name)
    print("loaded", path)
"""


def test_what_passes_here_loads_here(sound, tmp_path):
    """Damage in the heads of files, where every byte decides something."""
    random, passed, refused = Random(0), [], 0
    for number in range(150):
        data = bytearray(random.choice(sound))
        # The flatbuffer's size is in the header, if there is one.
        size = int.from_bytes(data[16:24], "little") if data[8:12] == b"eh00" else len(data)
        for _ in range(random.choice((1, 1, 2))):
            data[random.randrange(size)] = random.choice((0, 1, 127, 255, random.randrange(256)))
        path = tmp_path / f"{number}.pte"
        path.write_bytes(data)
        try:
            problems = check(path)
        except ArtifactError as error:
            problems = [str(error)]
        refused += bool(problems)
        passed += [] if problems else [str(path)]
    assert refused > 50
    assert len(passed) > 25
    done = subprocess.run([sys.executable, "-c", LOADER, *passed], capture_output=True, text=True)
    loaded = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert (loaded, done.returncode) == (passed, 0), done.stderr[-2000:]
