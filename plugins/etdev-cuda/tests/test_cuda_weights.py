"""What ExecuTorch's test_cuda_partitioner.py expects of weights, expected of etdev's .ptd."""

import pytest
import torch
from executorch.exir._serialize._cord import Cord
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer
from support.toys.aoti import NEEDS_1_5
from torch import nn

from etdev import Lowerer
from etdev.errors import CompileError
from etdev.registry import PluginEntry, Registry

pytestmark = [NEEDS_1_5, pytest.mark.usefixtures("aoti")]
LOW_MEMORY = Registry((PluginEntry("cuda", options={"low_memory_mode": True}),))
DEFAULT = Registry((PluginEntry("cuda"),))
X = (torch.randn(3, 4),)


class Sum(nn.Module):
    """The input plus every buffer, each seen as (3, 4)."""

    def __init__(self, **buffers):
        super().__init__()
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        for value in self.buffers():
            x = x + value.reshape(3, 4)
        return x


class Sums(nn.Module):
    """The sum of all inputs so far."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3, 4))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


def program(**buffers):
    return torch.export.export(Sum(**buffers), X)


def stored(folder, methods, registry=DEFAULT, **options):
    """Bytes by key in the .ptd that a lowering writes."""
    Lowerer(["cuda"], registry=registry, **options).lower(methods).save(folder / "net.pte")
    (data,) = folder.glob("*.ptd")
    payload = FlatTensorSerializer().deserialize(Cord(data.read_bytes()))
    return {key: payload.buffers[e.buffer_index] for key, e in payload.named_data.items()}


def names(keys):
    """The weights' names in the keys of named data: what follows @ tells contents apart."""
    return sorted(key.rpartition(":")[2].partition("@")[0] for key in keys)


def numbers(start):
    return torch.arange(start, start + 12.0).reshape(3, 4)


def test_each_weight_is_stored_as_its_own_bytes(tmp_path):
    data = stored(tmp_path, program(first=numbers(0), second=numbers(12)))
    assert names(data) == ["first", "second"]
    values = {numbers(0).numpy().tobytes(), numbers(12).numpy().tobytes()}
    assert set(map(bytes, data.values())) == values


def test_views_of_one_tensor_are_weights_of_their_own(tmp_path):
    base = torch.arange(24.0)
    keys = stored(tmp_path, program(base=base[:12], view=base[12:].reshape(3, 4)))
    assert names(keys) == ["base", "view"]


def test_one_name_in_two_shapes_is_stored_once(tmp_path):
    methods = {"flat": program(w=numbers(0).flatten()), "square": program(w=numbers(0))}
    keys = stored(tmp_path, methods)
    assert names(keys) == ["w"]


@pytest.mark.parametrize("devices", [("cuda:0", "cuda:0"), ("cuda:0", "cuda:1")])
def test_one_name_of_two_modules_is_stored_for_each(tmp_path, devices):
    methods = {"one": program(w=numbers(0)), "two": program(w=numbers(12))}
    by_method = {"cuda": dict(zip(methods, devices, strict=True))}
    data = stored(tmp_path, methods, devices=by_method)
    assert names(data) == ["w", "w"]
    values = {numbers(0).numpy().tobytes(), numbers(12).numpy().tobytes()}
    assert set(map(bytes, data.values())) == values


def test_buffers_that_methods_write_are_kept_apart_although_they_begin_alike(tmp_path):
    methods = {name: torch.export.export(Sums(), X) for name in ("one", "two")}
    keys = stored(tmp_path, methods)
    assert names(keys) == ["total", "total"]
    assert {key.partition("@")[2] for key in keys} == {"one", "two"}


def test_constants_that_the_model_does_not_name_are_kept_apart_by_library(tmp_path):
    methods = {
        "one": program(_tensor_constant0=numbers(0)),
        "two": program(_tensor_constant0=numbers(12), other=numbers(0)),
    }
    local = [key for key in stored(tmp_path, methods) if "_tensor_constant0" in key]
    assert len(local) == 2
    assert all(key.endswith("_so_blob:_tensor_constant0") for key in local)


def test_the_device_is_part_of_the_key_and_low_memory_keeps_the_gpus(tmp_path):
    (tmp_path / "low").mkdir()
    default = stored(tmp_path, program(w=numbers(0)))
    low = stored(tmp_path / "low", program(w=numbers(0)), LOW_MEMORY)
    # The fake compiles on the CPU, where low memory keeps clones of what belongs on the GPU.
    kinds = [key.partition("@")[0] for key in (*default, *low)]
    assert kinds == ["cuda_fqn_weight:cpu:w", "cuda_fqn_weight:cuda:w"]
    assert list(map(bytes, default.values())) == list(map(bytes, low.values()))


def test_a_compiler_that_gives_weights_and_no_library_is_named(aoti, monkeypatch):
    compiler = aoti.compile
    monkeypatch.setattr(
        torch._inductor, "aot_compile", lambda *args, **kwargs: compiler(*args, **kwargs)[1:]
    )
    with pytest.raises(CompileError, match=r"cuda: CudaBackend failed on .*\.wrapper\.so output"):
        Lowerer(["cuda"], registry=LOW_MEMORY).lower(program(w=numbers(0)))


@pytest.mark.parametrize(
    ("registry", "shared"), [(DEFAULT, False), (LOW_MEMORY, True)], ids=["default", "low memory"]
)
def test_weights_are_copied_for_the_compiler_unless_memory_is_low(registry, shared, aoti):
    given = program(w=numbers(0))
    Lowerer(["cuda"], registry=registry).lower(given)
    (call,) = aoti.calls
    assert (call.addresses["w"] == given.state_dict["w"].data_ptr()) == shared
    assert torch.equal(given.state_dict["w"], numbers(0))
    assert call.options["aot_inductor.package_constants_on_disk_format"] == "pickle_weights"
