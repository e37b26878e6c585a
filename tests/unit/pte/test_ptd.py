"""Data files: each model has its own .ptd, and etdev check knows which one it needs."""

import inspect

import pytest
import torch
from attrs import define
from executorch.exir import ExecutorchBackendConfig
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.runtime import Runtime
from support.models import nets
from support.toys.accelerator import Accelerator
from torch import nn

from etdev import Device, Lowerer, hookimpl
from etdev.errors import ArtifactError
from etdev.pte.ptd import keys_of
from etdev.runtime.check import check
from etdev.runtime.run import run

X = (torch.ones(2, 2),)
CUDA = [Device("cuda", 0)]


class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.register_buffer("factor", torch.full((2, 2), factor))

    def forward(self, x):
        return x * self.factor


class FakeKeeper(BackendDetails):
    """Stands in for a backend that keeps weights outside, each under a name of its content."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        store = NamedDataStore()
        keys = []
        for tensor in edge_program.state_dict.values():
            keys.append(f"weight_{float(tensor.sum())}")
            store.add_named_data(keys[-1], tensor.numpy().tobytes(), 1, external_tag="fake_blob")
        store.add_named_data("library", b"code", 1, None)
        payload = "\n".join([*keys, "library"]).encode()
        return PreprocessResult(payload, data_store_output=store.get_named_data_store_output())


@define(eq=False)
class Keeper(Accelerator):
    name: str = "keeper"
    ops: tuple = ("mul",)
    backend: str = "FakeKeeper"

    @hookimpl
    def payload_data(self, backend_id, payload):
        return payload.decode().splitlines() if backend_id == "FakeKeeper" else None


def problems(path, plugin=None, data=None):
    found = check(path, CUDA, plugins=Lowerer([plugin or Keeper()]).plugins, data=data)
    return [text for text in found if "runtime has no backend" not in text]


@pytest.fixture
def saved(tmp_path):
    def save(name, factor):
        return Lowerer([Keeper()]).lower(Scale(factor), X).save(tmp_path / f"{name}.pte")

    return save


def test_two_models_in_one_folder_keep_their_own_data(saved):
    one, two = saved("one", 1.0), saved("two", 2.0)
    assert keys_of(one.with_name("one.fake_blob.ptd")) == {"weight_4.0"}
    assert keys_of(two.with_name("two.fake_blob.ptd")) == {"weight_8.0"}
    assert (problems(one), problems(two)) == ([], [])


def test_data_of_another_model_is_not_taken_for_ones_own(saved):
    one, two = saved("one", 1.0), saved("two", 2.0)
    one.with_name("one.fake_blob.ptd").unlink()
    missing = (
        "it keeps 1 constants outside that are not in two.fake_blob.ptd; "
        "delegate 0 (FakeKeeper) of forward needs weight_4.0; put it there, or name it with --data"
    )
    assert problems(one) == [missing]
    assert problems(one, data=two.with_name("two.fake_blob.ptd")) == [missing]
    assert problems(two) == []


def test_a_damaged_data_file_is_named(saved):
    path = saved("one", 1.0)
    data = path.with_name("one.fake_blob.ptd")
    data.write_bytes(data.read_bytes()[:20])
    assert problems(path)[0].startswith(f"{data}: can't be read (")
    with pytest.raises(ArtifactError, match=r"give a \.ptd that ExecuTorch wrote"):
        keys_of(data)


@pytest.fixture
def external(tmp_path):
    """A program that runs here, its constants in a .ptd beside it."""
    module, inputs = nets.mlp()
    config = ExecutorchBackendConfig(external_constants=True)
    path = Lowerer([]).lower(module, inputs).save(tmp_path / "mlp.pte", config)
    return path, module, inputs


@pytest.mark.skipif(
    "data_path" not in inspect.signature(Runtime.load_program).parameters,
    reason="this ExecuTorch can't load a .ptd from Python",
)
def test_a_program_runs_with_its_data_file(external, tmp_path):
    path, module, inputs = external
    expected = module(*inputs)
    torch.testing.assert_close(run(path, inputs).outputs[0], expected)
    (data,) = tmp_path.glob("*.ptd")
    renamed = data.rename(tmp_path / "other.ptd")
    torch.testing.assert_close(run(path, inputs).outputs[0], expected)
    data = renamed
    moved = data.rename(tmp_path / "elsewhere.bin")
    torch.testing.assert_close(run(path, inputs, data=moved).outputs[0], expected)


def test_a_program_without_its_data_file_is_not_run(external, tmp_path):
    path, _, inputs = external
    (data,) = tmp_path.glob("*.ptd")
    data.unlink()
    with pytest.raises(ArtifactError) as caught:
        run(path, inputs)
    assert str(caught.value) == (
        f"{path}: keeps constants in a .ptd that is not in {tmp_path}; "
        "put it there, or name it with --data"
    )
