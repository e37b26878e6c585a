"""Lowering through the real CudaBackend; only AOTInductor is a fake."""

import os

import pytest
import torch
from support.models import decoders
from support.toys.aoti import NEEDS_1_5
from torch import nn

from etdev import CPU, Device, Lowerer
from etdev.errors import EtdevWarning, PluginError
from etdev.pte.ptd import keys_of
from etdev.pte.read import read
from etdev.registry import PluginEntry, Registry
from etdev.runtime.check import check

pytestmark = pytest.mark.usefixtures("aoti")
X = (torch.randn(3, 4),)
CUDA0, CUDA1 = Device("cuda", 0), Device("cuda", 1)


class Scaled(nn.Module):
    """A product with a constant of a given value."""

    def __init__(self, value, name="weight"):
        super().__init__()
        self.register_buffer(name, torch.full((3, 4), value))
        self.name = name

    def forward(self, x):
        return (x * getattr(self, self.name)).cos()


def with_options(**options):
    return Registry((PluginEntry("cuda", options=options),))


def problems(path):
    """What `etdev check` reports, except that this machine's runtime has no CudaBackend."""
    reported = check(path, [CPU, CUDA0, CUDA1], plugins=Lowerer(["cuda"]).plugins)
    return [text for text in reported if "runtime has no" not in text]


def test_the_delegate_carries_its_method_and_its_device(tmp_path):
    path = Lowerer(["cuda"]).lower(Scaled(2.0), X).save(tmp_path / "net.pte")
    (delegate,) = read(path).methods[0].delegates
    assert {spec.key: spec.value for spec in delegate.compile_specs} == {
        "method_name": b"forward",
        "target_device": b"cuda:0",
    }
    assert (delegate.backend_id, delegate.devices) == ("CudaBackend", (CUDA0,))


def test_each_method_is_compiled_under_its_own_name():
    methods = {name: torch.export.export(Scaled(2.0), X) for name in ("encode", "decode")}
    plan = Lowerer(["cuda"]).plan(methods)
    names = {
        spec.value.decode(): part.method
        for part in plan.partitions
        for spec in part.compile_specs
        if spec.key == "method_name"
    }
    assert names == {"encode": "encode", "decode": "decode"}


def test_the_library_is_in_the_pte_and_the_weights_in_a_ptd_of_its_name(tmp_path):
    one = Lowerer(["cuda"]).lower(Scaled(1.0), X).save(tmp_path / "one.pte")
    two = Lowerer(["cuda"]).lower(Scaled(2.0), X).save(tmp_path / "two.pte")
    data = [path.name for path in sorted(tmp_path.glob("*.ptd"))]
    assert data == ["one.aoti_cuda_blob.ptd", "two.aoti_cuda_blob.ptd"]
    assert [key.endswith("_so_blob") for key in read(one).named] == [True]
    assert (problems(one), problems(two)) == ([], [])


def test_methods_store_the_weights_they_share_once(tmp_path):
    module = nn.Linear(256, 256)
    methods = {
        name: torch.export.export(module, (torch.randn(rows, 256),))
        for name, rows in {"prefill": 8, "decode": 1}.items()
    }
    path = Lowerer(["cuda"]).lower(methods).save(tmp_path / "net.pte")
    (data,) = tmp_path.glob("*.ptd")
    weights = sum(parameter.nbytes for parameter in module.parameters())
    assert weights < data.stat().st_size < 1.2 * weights
    assert problems(path) == []


@NEEDS_1_5
def test_equal_values_under_two_names_are_two_weights(tmp_path):
    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("first", torch.ones(3, 4))
            self.register_buffer("second", torch.ones(3, 4))

        def forward(self, x):
            return x * self.first + self.second

    Lowerer(["cuda"]).lower(Twins(), X).save(tmp_path / "net.pte")
    (data,) = tmp_path.glob("*.ptd")
    assert len(keys_of(data)) == 2


def test_a_cache_that_one_delegate_writes_is_inside_it():
    module, inputs = decoders.cached_decoder()
    (partition,) = Lowerer(["cuda"]).plan(module, inputs).partitions
    caches = {c.target: c.storage for c in partition.constants if c.mutated}
    assert caches == {"keys": "owned", "values": "owned"}


def test_a_pinned_device_is_compiled_for_and_carries_its_caveat(aoti, tmp_path):
    with pytest.warns(EtdevWarning, match="runs on the current CUDA device of the process"):
        lowered = Lowerer(["cuda"], devices={"cuda": "cuda:1"}).lower(Scaled(1.0), X)
    assert [call.device for call in aoti.calls] == [1]
    (partition,) = lowered.plan.partitions
    assert (partition.device, partition.device_source) == (CUDA1, "pinned")
    assert partition.device_note.endswith("call cudaSetDevice(1) before loading")
    (problem,) = problems(lowered.save(tmp_path / "net.pte"))
    assert problem == (
        "method forward: delegate 0 (CudaBackend) is labelled cuda:1, but its payload uses cuda:0"
    )


def test_methods_on_two_devices_are_compiled_on_two(aoti):
    methods = {name: torch.export.export(Scaled(1.0), X) for name in ("encode", "decode")}
    pins = {"cuda": {"encode": "cuda:0", "decode": "cuda:1"}}
    with pytest.warns(EtdevWarning):
        Lowerer(["cuda"], devices=pins).lower(methods)
    assert sorted(call.device for call in aoti.calls) == [0, 1]


def test_a_gpu_that_the_machine_lacks_is_named():
    with pytest.warns(EtdevWarning), pytest.raises(PluginError) as caught:
        Lowerer(["cuda"], devices={"cuda": "cuda:7"}).lower(Scaled(1.0), X)
    assert str(caught.value) == (
        "cuda: entering compile_context for cuda:7 raised RuntimeError: CUDA error: "
        "invalid device ordinal; the cause is chained below"
    )


def test_options_reach_the_compiler_under_executorchs_names(aoti):
    options = {"max_autotune": False, "emulate_precision_casts": False}
    Lowerer(["cuda"], registry=with_options(**options)).lower(Scaled(1.0), X)
    Lowerer(["cuda"]).lower(Scaled(1.0), X)
    given = [{key: call.options[key] for key in options} for call in aoti.calls]
    assert given == [options, dict.fromkeys(options, True)]


def test_attention_is_given_whole_and_becomes_a_triton_kernel_unless_told_otherwise(aoti):
    module, inputs = decoders.attention()
    Lowerer(["cuda"]).lower(module, inputs)
    Lowerer(["cuda"], registry=with_options(triton_kernel_mode=False)).lower(module, inputs)
    triton, plain = (call.nodes for call in aoti.calls)
    assert "sdpa" in triton
    assert any("scaled_dot_product_attention" in name for name in plain)


@NEEDS_1_5
def test_environment_variables_are_set_only_while_it_compiles(aoti, monkeypatch):
    seen = []
    compiler = aoti.compile
    name = "ET_CUDA_TARGET_SMEM_BYTES"
    monkeypatch.setattr(
        torch._inductor,
        "aot_compile",
        lambda *args, **kwargs: seen.append(os.environ.get(name)) or compiler(*args, **kwargs),
    )
    monkeypatch.delenv(name, raising=False)
    Lowerer(["cuda"], registry=with_options(target_smem_bytes=101376)).lower(Scaled(1.0), X)
    assert (seen, os.environ.get(name)) == (["101376"], None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param(
            {"autotune_pointwise": True},
            "the installed ExecuTorch has no option autotune_pointwise",
            marks=NEEDS_1_5,
        ),
        ({"platform": "amiga"}, "'platform' must be in"),
        ({"target_smem_bytes": 0}, "'target_smem_bytes' must be > 0"),
    ],
)
def test_bad_options_are_named(options, text):
    with pytest.raises(PluginError) as caught:
        Lowerer(["cuda"], registry=with_options(**options)).plan(Scaled(1.0), X)
    assert text in str(caught.value)
