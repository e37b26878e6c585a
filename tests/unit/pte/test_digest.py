"""A .pte carries a digest of its own bytes and of its .ptd, which check and run compare."""

import random
from pathlib import Path

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig
from support.toys.runtime import by_partitioner
from torch import nn

from etdev import Lowerer
from etdev.errors import ArtifactError, EtdevError
from etdev.pte import digest
from etdev.runtime.check import check, notes
from etdev.runtime.run import run

X = (torch.ones(1, 64),)
CHANGED = "it is not as it was written: some of its bytes have changed; copy it again, or lower it "
OUTSIDE = ExecutorchBackendConfig(external_constants=True)


def net(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


@pytest.fixture(scope="module")
def lowered():
    return Lowerer(["cpu"]).lower(net(0), X)


@pytest.fixture
def file(lowered, tmp_path):
    return lowered.save(tmp_path / "net.pte")


def problems(file):
    try:
        return check(file)
    except EtdevError as error:
        return [str(error)]


def test_a_file_is_as_it_was_written(lowered, file):
    assert (check(file), notes(file)) == ([], [])
    assert file.read_bytes() == lowered.to_executorch().buffer == lowered.to_executorch().buffer
    run(file, list(X))


def test_a_flipped_bit_is_found_wherever_it_is(file):
    content, chance = file.read_bytes(), random.Random(0)
    for place in chance.sample(range(len(content)), 40):
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        assert problems(file), place


def test_changed_weights_are_no_longer_loaded(file):
    content = bytearray(file.read_bytes())
    weight = net(0)[0].weight.detach().numpy().tobytes()[:32]
    content[content.index(weight) + 3] ^= 1
    file.write_bytes(content)
    assert check(file) == [f"{CHANGED}again"]
    with pytest.raises(ArtifactError, match=r"net.pte: is not as it was written: some of its byt"):
        run(file, list(X))


def test_the_data_of_another_model_is_refused(tmp_path):
    for name, seed in (("one", 1), ("two", 2)):
        Lowerer([]).lower(net(seed), X).save(tmp_path / f"{name}.pte", OUTSIDE)
    file = tmp_path / "one.pte"
    own, other = (next(tmp_path.glob(f"{name}.*.ptd")) for name in ("one", "two"))
    digest.compare(file, own)
    assert notes(file) == []
    message = (
        f"{other}: is not the data that one.pte was written with; put the file of that lowering "
        "there, or lower again"
    )
    assert check(file, data=other) == [message]
    own.write_bytes(other.read_bytes())
    assert check(file) == [message.replace(other.name, own.name)]
    with pytest.raises(ArtifactError, match=r"is not the data that one\.pte was written with"):
        run(file, list(X))


def test_a_file_without_a_digest_says_so(tmp_path):
    file = Path(tmp_path / "plain.pte")
    file.write_bytes(by_partitioner(nn.ReLU(), X).to_executorch().buffer)
    assert check(file) == []
    assert notes(file) == [
        "it carries no digest, so that nobody knows whether its bytes have changed"
    ]
