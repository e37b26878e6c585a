"""What happens to the model between lowering and saving doesn't get into the .pte."""

import pytest
import torch
from support.toys.runtime import assert_agrees, execute
from torch import nn

from etdev import Lowerer
from etdev.errors import LoweringError

X = torch.randn(2, 4)


class Net(nn.Module):
    """A layer that XNNPACK holds, and a weight that a portable kernel reads."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.randn(2, 4))

    def forward(self, x):
        return torch.atan2(x, self.weight) + self.layer(x)


class Counter(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.register_buffer("count", torch.tensor([start]))

    def forward(self, x):
        self.count.add_(1.0)
        return x + self.count


def trained(*parameters):
    for parameter in parameters:
        with torch.no_grad():
            parameter.add_(1)


@pytest.mark.parametrize("plugins", [["cpu"], []], ids=["cpu", "portable"])
def test_a_weight_that_the_program_takes_from_the_model_is_refused_by_name(plugins, tmp_path):
    net = Net().eval()
    lowered = Lowerer(plugins).lower(net, (X,))
    lowered.save(tmp_path / "before.pte")
    trained(net.weight)
    with pytest.raises(LoweringError) as caught:
        lowered.save(tmp_path / "after.pte")
    assert str(caught.value) == (
        "forward: 'weight' was changed after the model was lowered; lower it again, or change a "
        "copy of the model"
    )
    assert not (tmp_path / "after.pte").exists()
    assert_agrees(Lowerer(plugins).lower(net, (X,)), net, (X,))


def test_a_weight_that_a_delegate_holds_is_refused_too():
    net = Net().eval()
    lowered = Lowerer(["cpu"]).lower(net, (X,))
    trained(net.layer.weight, net.layer.bias)
    with pytest.raises(LoweringError, match=r"'layer\.(weight|bias)' was changed after"):
        lowered.to_executorch()


@pytest.mark.parametrize("start", [5.0, 0.0])
def test_state_starts_with_what_it_was(start):
    net = Counter(start)
    lowered = Lowerer([]).lower(net, (X,))
    for _ in range(3):
        net(X)
    first, second = execute(lowered, (X,), (X,))
    # `X + start + 1` would round twice, and the model rounds once.
    assert torch.equal(first[0], X + (start + 1))
    assert torch.equal(second[0], X + (start + 2))
