"""Constants and named data of the same bytes, which are in a .pte once."""

import pytest
import torch
from support.models.matrix import Tied

from etdev import Lowerer
from etdev.errors import ArtifactError
from etdev.pte import digest


def test_tied_weights_are_in_a_file_once(tmp_path):
    model = Tied().eval()
    lowered = Lowerer(["cpu"]).lower(model, (torch.tensor([[3, 255, 0]]),))
    assert {p.plugin for p in lowered.plan.partitions} == {"cpu"}
    assert lowered.plan.stored_again == ()
    path = lowered.save(tmp_path / "net.pte")
    data = path.read_bytes()
    weight = model.embedding.weight.detach().numpy().tobytes()
    assert data.count(weight) == 1
    assert not lowered.verify(path=path).unverified
    digest.compare(path)
    place = data.index(weight)
    path.write_bytes(data[:place] + b"\1" + data[place + 1 :])
    with pytest.raises(ArtifactError, match="some of its bytes have changed"):
        digest.compare(path)
