"""Faults of many kinds, planted in a backend's compiler: who is caught?"""

from __future__ import annotations

import functools

import pytest
import torch
from attrs import evolve
from etdev_cpp import build
from etdev_cpp.libraries import installed
from support.models.small import Function
from support.toys import planted
from support.toys.nested import Nested, NestedBackend, library
from support.toys.planted import aten

from etdev import Lowerer, VerifyError

# A verification may miss this many kinds in a model, if it says what it did not try.
MISSES = 2
# These need a size, an element, a value or a call that the example has not.
QUICK = (
    "at one size in between", "at a multiple of 4", "at ties", "at exact multiples",
    "at values above 100", "from the third call",
)  # fmt: skip
MOST = (torch.arange(3)[:, None] + torch.arange(32)) % 3 != 0


@pytest.fixture(scope="module", autouse=True)
def _built(tmp_path_factory):
    if not build.find() or not installed():
        pytest.skip("there is no C++ compiler here, or no library of ExecuTorch for C++")
    with library(tmp_path_factory.mktemp("nested")):
        yield


@pytest.fixture(scope="module")
def programs():
    """The exported program of each model, and the dynamic dimension of `x`."""

    def export(model):
        torch.manual_seed(0)
        inputs, shapes = model.inputs()
        program = torch.export.export(model().eval(), inputs, dynamic_shapes=shapes)
        return program, next(iter(shapes["x"])) if shapes else -1

    return functools.cache(lambda name: export(planted.MODELS[name]))


@pytest.fixture
def verified(programs, monkeypatch):
    """Verify a model whose compiler has a kind of fault."""

    def verify(name, kind=None):
        program, dim = programs(name)
        fault = planted.FAULTS[kind] if kind else None
        if fault and fault.when in ("size", "above", "multiple", "shrunk"):
            fault = evolve(fault, dim=dim)
        monkeypatch.setattr(NestedBackend, "fault", fault)
        return Lowerer([Nested()]).lower(program).verify(runner="python")

    return verify


def caught(verified, name, kind):
    try:
        verified(name, kind)
    except VerifyError:
        return True
    return False


@pytest.mark.slice("at a multiple of 4", "at ties", "at values above 100", "from the third call")
@pytest.mark.parametrize("kind", QUICK)
def test_a_planted_fault_is_refused(verified, kind):
    with pytest.raises(VerifyError, match="delegate nested_0"):
        verified("perceptron", kind)


def test_a_compiler_without_faults_is_verified_over_all_draws(verified):
    done = verified("perceptron")
    (coverage,) = done.coverage
    assert coverage.gaps == ()
    assert done.calls == coverage.calls >= 20
    assert len(coverage.sizes["x.shape[0]"]) >= 8


@pytest.mark.suite
@pytest.mark.parametrize("name", planted.MODELS)
def test_faults_of_twenty_kinds_are_refused_where_they_can_occur(verified, name):
    assert verified(name).calls >= 20
    missed = [
        kind for kind in planted.kinds_in(planted.MODELS[name]) if not caught(verified, name, kind)
    ]
    assert len(missed) <= MISSES
    gaps = " ".join(gap for kind in missed for c in verified(name, kind).coverage for gap in c.gaps)
    assert not missed or gaps, missed


def _no_epsilon(to, x, shape, weight, bias, _):
    return to.make(aten.native_layer_norm.default, x, shape, weight, bias, 1e-12)


def _half_up(to, x):
    return to.make(aten.floor.default, to.make(aten.add.Scalar, x, 0.5))


def _without_last(to, weight, index, *rest):
    index = to.make(aten.clamp.default, index, 0, 98)
    return to.make(aten.embedding.default, weight, index, *rest)


def _at_least_zero(to, x, *rest):
    return to.make(aten.relu.default, to.make(aten.amax.default, x, *rest))


def _saturated(to, x):
    return to.make(aten.exp.default, to.make(aten.clamp.default, x, None, 20.0))


def _at_least(to, x, threshold):
    return to.make(aten.ge.Scalar, x, threshold)


def _in_32_bits(to, x, factor):
    return to.make(aten.clamp.default, to.make(aten.mul.Tensor, x, factor), -(2**31), 2**31 - 1)


def _unlike_1(to, x, _):
    return to.make(aten.ne.Scalar, x, 1)


UNLIKE_ANY_EXAMPLE = {
    "the last row of a table": (torch.nn.Embedding(100, 4), aten.embedding.default, _without_last),
    "negative numbers alone": (lambda x: x.amax(-1), aten.amax.default, _at_least_zero),
    "a small variance": (torch.nn.LayerNorm(8), aten.native_layer_norm.default, _no_epsilon),
    "halves": (lambda x: x.round() * 2, aten.round.default, _half_up),
    "just before it overflows": (lambda x: x.exp(), aten.exp.default, _saturated),
    "a threshold": (lambda x: (x > 0.3) * 2.0, aten.gt.Scalar, _at_least),
    "integers of 64 bits": (lambda x: x * 3, aten.mul.Tensor, _in_32_bits),
    "a mask of 2": (lambda x: (x == 0) * 2.0, aten.eq.Scalar, _unlike_1),
}
INTEGERS = {
    "the last row of a table": [3, 60, 22],
    "integers of 64 bits": [3, 60, 22],
    "a mask of 2": [0, 1, 1],
}


@pytest.mark.parametrize("values", UNLIKE_ANY_EXAMPLE)
def test_a_fault_at_values_that_no_example_has_is_refused(monkeypatch, values):
    torch.manual_seed(0)
    model, op, instead = UNLIKE_ANY_EXAMPLE[values]
    inputs = (torch.tensor(INTEGERS[values]) if values in INTEGERS else torch.randn(4, 8),)
    module = model if isinstance(model, torch.nn.Module) else Function(model)
    assert Lowerer([Nested()]).lower(module, inputs).verify(runner="python").calls >= 17
    fault = planted.Fault(lambda: planted.Altered(op=op, instead=instead))
    monkeypatch.setattr(NestedBackend, "fault", fault)
    with pytest.raises(VerifyError, match="delegate nested_0"):
        Lowerer([Nested()]).lower(module, inputs).verify(runner="python")


@pytest.mark.parametrize("size", [2, 63])
def test_a_fault_next_to_a_bound_of_a_size_is_refused(monkeypatch, size):
    fault = planted.Fault(planted.FAULTS["at size 1"].alter, "size", size, dim=0)
    shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
    monkeypatch.setattr(NestedBackend, "fault", fault)
    lowered = Lowerer([Nested()]).lower(
        torch.nn.Linear(8, 4), (torch.randn(5, 8),), dynamic_shapes=shapes
    )
    with pytest.raises(VerifyError):
        lowered.verify(runner="python")


def test_every_kind_can_occur_in_a_model():
    assert planted.FAULTS.keys() == planted.KINDS.keys()
    assert {kind for m in planted.MODELS.values() for kind in planted.kinds_in(m)} == {
        *planted.KINDS
    }


def test_a_fault_beside_a_majority_of_fills_is_refused():
    def forward(x):
        factor = 2 if torch.compiler.is_exporting() else 1
        return (x * factor).masked_fill(MOST, -1e9)

    with pytest.raises(VerifyError):
        Lowerer([]).lower(Function(forward), (torch.randn(3, 32),)).verify(runner="python")
