"""Checks: what would not load or not run, found from the file."""

import torch
from attrs import define
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from models import nets
from torch import nn
from toys.accelerator import Accelerator

from etdev import CPU, Device, Lowerer, hookimpl
from etdev.pte.read import compiled
from etdev.runtime.check import check, notes

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
    assert check(path) == [f"its constants are in a .ptd file, and there is none in {tmp_path}"]
    assert check(path, data=data) == [f"its constants are in {data}, which is not there"]


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
