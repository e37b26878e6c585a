"""Limits: which partitions they give up, where they are said, and that the rest still computes.

What others get of it is in cases/limits.txt.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models import nets
from support.toys import Takes
from support.toys.runtime import assert_agrees

from etdev import Limits, Lowerer
from etdev.errors import EtdevWarning, PluginError


@given(
    st.lists(st.integers(1, 6), max_size=8),
    st.none() | st.integers(1, 6),
    st.none() | st.integers(1, 6),
)
def test_what_is_left_is_large_enough_and_no_larger_one_is_given_up(sizes, least, most):
    found = Limits(least, most).refusals([(size, at) for at, size in enumerate(sizes)])
    left = [(size, -at) for at, size in enumerate(sizes) if found[at] is None]
    surplus = [(s, -at) for at, s in enumerate(sizes) if found[at] and s >= (least or 1)]
    assert all(size >= (least or 1) for size, _ in left)
    assert len(left) <= (most or len(sizes))
    assert not surplus or (len(left) == most and max(surplus) < min(left))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"a": {"min_nodes": 0}}, "limits.a: 'min_nodes' must be >= 1: 0"),
        (
            {"a": {"min": 3}},
            "limits.a.min: is an unknown key; valid are min_nodes, max_partitions, "
            "hook_timeout_s, compile_timeout_s, methods",
        ),
        (3, "limits: is 3; it must be a table"),
        ({"b": {"min_nodes": 3}}, "b: has limits but is not asked; the plugins are a, portable"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits, message):
    with pytest.raises(PluginError) as caught:
        Lowerer([Takes("a", ("add.Tensor",))], limits=limits)
    assert str(caught.value) == message


# XNNPACK


def test_xnnpack_within_limits_gives_eagers_numbers():
    module, inputs = nets.conv_net()
    free = Lowerer(["cpu"]).plan(module, inputs)["forward"]
    most = max(free.partitions, key=lambda part: len(part.nodes))
    lowered = Lowerer(["cpu"], limits={"cpu": {"max_partitions": 1}}).lower(module, inputs)
    assert [part.nodes for part in lowered.plan.partitions] == [most.nodes]
    assert_agrees(lowered, module, inputs, tolerance=1e-4)


def test_a_plugin_is_asked_about_the_methods_that_its_limits_name():
    given = dict.fromkeys(("one", "two"), nets.mlp())
    plugin = Takes("a", ("relu.default",))
    plan = Lowerer([plugin], limits={"a": {"methods": ["two"]}}).plan(given)
    codes = {
        m.method: {v.code for e in m.ledger.entries for v in e.verdicts if v.plugin == "a"}
        for m in plan.methods
    }
    assert codes["one"] == {"not-asked"}
    assert "claimed" in codes["two"]
    with pytest.warns(EtdevWarning, match="a: is asked about three only, which the program lacks"):
        Lowerer([plugin], limits={"a": {"methods": ["three"]}}).plan(given)
    with pytest.raises(PluginError, match="methods"):
        Lowerer([plugin], limits={"a": {"methods": []}})


def test_a_registry_that_pins_a_plugin_in_methods_that_the_program_lacks_is_told(tmp_path):
    path = tmp_path / "registry.toml"
    path.write_text('[plugins.cpu]\ndevice = {nope = "cpu"}\n')
    text = "cpu: is pinned in nope only, which the program lacks; it has forward"
    with pytest.warns(EtdevWarning, match=text):
        Lowerer(["cpu"], registry=path).plan(*nets.mlp())
