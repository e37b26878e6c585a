"""Inputs of a method: none at all, and those that the runtime can't be given."""

import warnings

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from support.toys.runtime import assert_agrees
from torch import nn
from torch.export import Dim, export

import etdev
from etdev import Lowerer
from etdev.errors import EtdevWarning, LoweringError, SourceError
from etdev.quirks import QUIRKS
from etdev.quirks.table import Fixer, Table
from etdev.schema.stages import VALIDATE

pytestmark = pytest.mark.usefixtures("quick_conversion")

ORDERS = ([], ["cpu"])


class Times(nn.Module):
    """A product with whatever it is given."""

    def forward(self, x, n):
        return x * 2 if isinstance(n, str) else x * n


@pytest.mark.parametrize(("n", "dynamic"), [(3, Dim.DYNAMIC), ("twice", None)])
def test_an_input_that_the_runtime_cannot_be_given_is_refused(n, dynamic):
    with pytest.raises(LoweringError) as caught:
        Lowerer([]).plan(Times(), (torch.ones(2), n), dynamic_shapes=(None, dynamic))
    assert str(caught.value) == (
        "prepare: input 'n' of method 'forward' is a string, or a Python number that may "
        "change, which ExecuTorch's runtime can't be given; make it a tensor and read it with "
        ".item(), or leave it out of the method's inputs"
    )


@pytest.mark.slice("plugins1")
@pytest.mark.parametrize("plugins", ORDERS)
@pytest.mark.parametrize("n", [3, 2.5, True])
def test_a_number_that_never_changes_is_an_input(n, plugins):
    inputs = (torch.randn(2, 3), n)
    assert_agrees(Lowerer(plugins).lower(Times(), inputs), Times(), inputs)


class Sizes(nn.Module):
    """Two inputs with sizes that have nothing to do with each other, but for a third."""

    def forward(self, x, y, z):
        return x + z, y.sum()


@pytest.mark.parametrize("entrance", ["Lowerer", "partitioner"])
def test_each_dynamic_size_without_an_upper_bound_is_named_once(entrance):
    inputs = (torch.randn(4, 2), torch.randn(6), torch.randn(4, 2))
    free, bounded = {0: Dim("rows")}, {0: Dim("rows", max=8)}
    unsized = (free, {0: Dim("other", max=6)}, free)
    sized = (bounded, {0: 3 * Dim("third", max=4)}, bounded)
    texts = []
    for shapes in (unsized, sized):
        program = export(Sizes(), inputs, dynamic_shapes=shapes)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if entrance == "Lowerer":
                Lowerer([]).lower(program)
            else:
                to_edge_transform_and_lower(program, partitioner=[etdev.partitioner([])])
        texts += [str(each.message) for each in caught if each.category is EtdevWarning]
    assert texts == [
        "validate: dynamic size 0 of input 'x' of method 'forward' has no upper bound, and "
        "ExecuTorch plans memory for 4, the example's; larger inputs fail at run time, so export "
        "it with Dim(..., max=...)"
    ]


def test_a_size_that_was_fixed_is_refused():
    sizes = ({0: Dim("n", max=8)},)
    program = export(nn.ReLU(), (torch.randn(3, 4),), dynamic_shapes=sizes)
    (x,) = program.graph.find_nodes(op="placeholder")
    assert int(x.meta["val"].shape[0]) == 3
    with pytest.raises(LoweringError, match="fixes dynamic size 0 of input 'input' of method 'f"):
        Fixer(Table(QUIRKS)).apply(VALIDATE, program, "forward")


class Named(nn.Module):
    """A layer, a weight and a state with names that torch.fx's GraphModule uses for itself."""

    def __init__(self):
        super().__init__()
        self.meta, self.graph = nn.Linear(4, 4), nn.Parameter(torch.randn(4))
        self.register_buffer("code", torch.zeros(4))

    def forward(self, x, *, scale):
        self.code.add_(x.sum(0))
        return self.meta(x) * scale + self.code * self.graph


def test_weights_may_be_called_like_attributes_of_a_graph_module():
    shapes = {"x": {0: Dim("rows", max=8)}, "scale": None}
    inputs, kwargs = (torch.randn(3, 4),), {"scale": torch.randn(4)}
    lowered = Lowerer(["cpu"]).lower(Named(), inputs, kwargs=kwargs, dynamic_shapes=shapes)
    assert lowered.verify().coverage[0].gaps == ()
    program = export(Named(), inputs, kwargs)
    with pytest.raises(SourceError, match="a weight called 'graph', a name"):
        Lowerer(["cpu"]).lower(program)
