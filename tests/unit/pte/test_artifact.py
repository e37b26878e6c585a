"""Reading .pte files: ours, plain ExecuTorch's, and damaged ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from support.models import nets

from etdev import CPU, Lowerer
from etdev.errors import ArtifactError
from etdev.pte import read
from etdev.pte.artifact import Arena, Value
from etdev.pte.ptd import keys_of


class Weighted(torch.nn.Module):
    """A portable product with a weight of 12 bytes, and a number beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, values: torch.Tensor, count: int) -> tuple[torch.Tensor, int]:
        return values * self.weight, count


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def plain(folder) -> Path:
    """The MLP, lowered by ExecuTorch alone."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    module, inputs = nets.mlp()
    exported = torch.export.export(module, inputs)
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    path = folder / "plain.pte"
    with path.open("wb") as file:
        edge.to_executorch().write_to_file(file)
    return path


@pytest.fixture(scope="module")
def portable(folder) -> Path:
    """No delegate, but a constant, a scalar input and two outputs."""
    return Lowerer([]).lower(Weighted(), (torch.ones(3), 2)).save(folder / "portable.pte")


def test_a_file_of_etdev_tells_its_delegates_kernels_and_memory(mlp_pte):
    facts = read.read(mlp_pte)
    (method,) = facts.methods
    assert (facts.path, facts.size_bytes) == (str(mlp_pte), mlp_pte.stat().st_size)
    assert method.name == "forward"
    assert [(d.backend_id, d.device, d.calls) for d in method.delegates] == [
        ("XnnpackBackend", CPU, 1),
        ("XnnpackBackend", CPU, 1),
    ]
    assert all(d.size_bytes > 0 and d.compile_specs == () for d in method.delegates)
    assert method.kernels == {"aten::native_layer_norm.out": 1}
    assert method.inputs == (Value("Tensor", "float32", (2, 8), order=(0, 1)),)
    assert method.outputs == (Value("Tensor", "float32", (2, 4), order=(0, 1)),)
    assert [arena.device for arena in method.arenas] == [CPU]
    assert method.arenas[0].size_bytes >= 2 * (8 + 16 + 16 + 4)


def test_constants_are_those_of_portable_kernels_and_named_data_those_of_delegates(mlp_pte):
    facts = read.read(mlp_pte)
    assert facts.constants_bytes >= 2 * 16 * 4
    assert facts.named_bytes >= (8 * 16 + 16 + 16 * 4 + 4) * 4


def test_a_file_of_plain_executorch_tells_the_same(mlp_pte, plain):
    ours, plain_ = read.read(mlp_pte), read.read(plain)
    (mine,), (other,) = ours.methods, plain_.methods
    assert [d.backend_id for d in other.delegates] == [d.backend_id for d in mine.delegates]
    assert other.kernels == mine.kernels
    assert (other.inputs, other.outputs) == (mine.inputs, mine.outputs)
    assert other.arenas == mine.arenas
    assert plain_.constants_bytes == ours.constants_bytes
    assert plain_.named_bytes == ours.named_bytes


def test_a_file_without_delegates_tells_its_constants_and_scalars(portable):
    facts = read.read(portable)
    (method,) = facts.methods
    assert facts.constants_bytes == 12
    assert facts.named_bytes == 0
    assert method.delegates == ()
    assert method.kernels == {"aten::mul.out": 1}
    assert method.inputs == (Value("Tensor", "float32", (3,), order=(0,)), Value("Int"))
    assert method.outputs == (Value("Tensor", "float32", (3,), order=(0,)), Value("Int"))
    assert all(isinstance(arena, Arena) for arena in method.arenas)


def test_a_dynamic_input_shows_its_upper_bound(dynamic_pte):
    facts = read.read(dynamic_pte)
    assert facts.methods[0].inputs == (
        Value("Tensor", "float32", (8, 4), dynamic=True, order=(0, 1)),
    )


def test_the_methods_of_a_file_are_told_apart(folder):
    x = (torch.ones(2),)
    lowered = Lowerer([]).lower({"up": (torch.nn.ReLU(), x), "down": (torch.nn.Sigmoid(), x)})
    facts = read.read(str(lowered.save(folder / "two.pte")))
    kernels = {method.name: list(method.kernels) for method in facts.methods}
    assert kernels == {"up": ["aten::relu.out"], "down": ["aten::sigmoid.out"]}


def test_a_folder_is_named(tmp_path):
    assert _error(tmp_path) == (
        f"{tmp_path}: can't be read (Is a directory); give a .pte that ExecuTorch wrote"
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_named_instead_of_waited_for(tmp_path):
    path = tmp_path / "net.pte"
    os.mkfifo(path)
    text = "is a pipe, which can't be read twice; give a .pte that ExecuTorch wrote"
    assert _error(path) == f"{path}: {text}"
    with pytest.raises(ArtifactError, match="it is a pipe"):
        keys_of(path)


@pytest.mark.parametrize("data", [b"", b"ET", b"some text\n", bytes(range(256))])
def test_what_is_no_pte_is_named(tmp_path, data):
    path = tmp_path / "text.pte"
    path.write_bytes(data)
    assert _error(path) == f"{path}: is not a .pte file; give a .pte that ExecuTorch wrote"


@pytest.mark.parametrize("half", ["mlp_pte", "plain"])
def test_half_a_file_is_damaged(half, tmp_path, request):
    data = request.getfixturevalue(half).read_bytes()
    path = tmp_path / "half.pte"
    path.write_bytes(data[: len(data) // 2])
    error = _error(path)
    assert error.startswith(f"{path}: is damaged or truncated (")
    assert error.endswith("); give a .pte that ExecuTorch wrote")


def _error(path: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        read.read(path)
    return str(caught.value)
