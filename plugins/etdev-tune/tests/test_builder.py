"""A candidate is lowered as its registry file says, with what the user decided."""

from __future__ import annotations

import json

import pytest
from attrs import evolve
from etdev_tune.builder import Build, Builder
from etdev_tune.candidate import Candidate, baselines, orders_of
from etdev_tune.exchange import Failure
from etdev_tune.moves import choices_of, option_moves
from etdev_tune.toml_writer import toml_of
from support.models import nets

import etdev
from etdev import EtdevError, Lowerer, Pin
from etdev.app import EagerMethod, Setup

BASE = Candidate("base", ("openvino", "cpu"))
CHANGES = {
    "as it is": BASE,
    "pins": evolve(BASE, pins=(Pin("portable", op="aten.relu.*"), Pin("cpu", op="*linear*"))),
    "options": BASE.with_option("openvino", "precision", "f32"),
    "another order": Candidate("turned round", ("cpu", "openvino")),
    "portable": baselines([])[-1],
}


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    """Builds candidates of the MLP."""
    setup = Setup.of(["openvino", "cpu"], cache=tmp_path_factory.mktemp("cache"))
    return Builder(EagerMethod.of_model(*nets.mlp()), setup, tmp_path_factory.mktemp("builds"))


# Its registry file has the most in it.
@pytest.mark.slice("pins")
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_measured_is_what_the_registry_file_makes(builder, tmp_path, name):
    build = builder.build(CHANGES[name])
    assert isinstance(build, Build)
    final, lock = builder.final(CHANGES[name], tmp_path / "net.pte", tmp_path / "registry.toml")
    assert final.digest == build.digest
    # OpenVINO numbers what it compiles in a process, and writes the numbers into its delegates: the
    # same bytes come from the same cache, or from a process that compiled as much before.
    lowerer = Lowerer(registry=tmp_path / "registry.toml", cache=builder.setup.running["cache"])
    again = lowerer.lower(*nets.mlp()).save(tmp_path / "again.pte", with_ledger=True)
    assert again.read_bytes() == (tmp_path / "net.pte").read_bytes()
    assert json.loads(lock)["files"][".pte"]


def test_a_candidate_is_lowered_once(builder):
    first = builder.build(BASE)
    again = builder.build(Candidate("under another name", BASE.plugins))
    assert (again.path, again.candidate.name) == (first.path, "under another name")


def test_a_candidate_that_can_not_be_lowered_is_a_finding(builder):
    failure = builder.build(Candidate("unknown", ("unknown",)))
    assert isinstance(failure, Failure)
    assert str(failure).startswith("refused: PluginError: unknown: ")


def test_pins_to_a_plugin_that_a_candidate_has_not_leave_nodes_to_portable_kernels():
    setup = Setup.of(["openvino", "cpu"], pins=[Pin("openvino", op="aten.relu.*")])
    (pin,) = Candidate("cpu alone", ("cpu",)).registry(setup.registry).pins
    assert (pin.plugin, pin.op) == ("portable", "aten.relu.*")


def test_devices_and_limits_that_are_given_are_in_every_registry():
    setup = Setup.of(["cpu"], devices={"cpu": "cpu"}, limits={"cpu": {"min_nodes": 3}})
    (entry,) = Candidate("cpu", ("cpu",)).registry(setup.registry).entries
    assert (str(entry.devices["*"]), entry.limits.min_nodes) == ("cpu", 3)


def test_a_misspelt_argument_of_lowerer_is_refused():
    with pytest.raises(EtdevError) as caught:
        Setup.of(["cpu"], simplfy=False)
    assert str(caught.value) == "simplfy: is not an argument of Lowerer; did you mean simplify?"


def test_options_with_few_values_are_moves_and_those_of_the_user_are_not():
    setup = Setup.of(["openvino", "cpu"])
    assert choices_of(setup.plugins["openvino"])["precision"] == ("f32_all", "bf16", "f32")
    assert choices_of(setup.plugins["cpu"])["per_op"] == (False, True)
    precisions = choices_of(setup.plugins["cpu"])["precisions"]
    assert precisions == ((), ("fp32",), ("static_quant",), ("dynamic_quant",))
    cpu = option_moves(Candidate("base", ("cpu",)), setup.plugins["cpu"], ())
    lists = {move.name: move for move in cpu}
    assert (
        toml_of(lists["base; cpu precisions=fp32"].registry(setup.registry)).count('["fp32"]') == 1
    )
    moves = {move.name for move in option_moves(BASE, setup.plugins["openvino"], {})}
    assert "base; openvino precision=f32" in moves
    assert "base; openvino precision=f32_all" not in moves
    fixed = {"precision": "bf16"}
    others = {move.name for move in option_moves(BASE, setup.plugins["openvino"], fixed)}
    assert moves - others == {"base; openvino precision=f32", "base; openvino precision=bf16"}


def test_an_object_has_no_options_to_move():
    class Plain:
        name = "plain"

        @etdev.hookimpl
        def claim_nodes(self, program):
            """Claims nothing."""

    setup = Setup.of([Plain(), "cpu"])
    assert choices_of(setup.plugins["plain"]) == {}
    assert set(setup.objects) == {"plain"}


def test_orders_have_two_plugins_or_more_and_baselines_one():
    assert [c.plugins for c in orders_of(["a", "b"])] == [("a", "b"), ("b", "a")]
    three = [c.plugins for c in orders_of(["a", "b", "c"])]
    assert len(three) == len(set(three)) == 12
    many = [c.plugins for c in orders_of(list("abcdef"))]
    assert len(many) == 30 + 6
    names = ["untuned", "a alone", "b alone", "portable alone"]
    assert [c.name for c in baselines(["a", "b"])] == names
    assert [c.name for c in baselines(["a"])] == ["untuned", "portable alone"]
