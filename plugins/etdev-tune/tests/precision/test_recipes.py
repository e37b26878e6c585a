"""A recipe gives layers their schemes, on real torchao and XNNPACK, without data."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from etdev_tune.precision.application import apply, unlifted
from etdev_tune.precision.layers import layers_of
from etdev_tune.precision.plugin import Precision
from etdev_tune.precision.recipe import Recipe
from etdev_tune.precision.schemes import Scheme, schemes_for
from etdev_tune.precision.static import prepared, scales_of
from support.models.small import Mixed
from support.shell import succeeds
from torch import nn

from etdev import Lowerer, PluginError, diff
from etdev.runtime.run import run

SHAPES = ({0: torch.export.Dim("batch", min=1, max=4)},)
X = (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)


@pytest.fixture(scope="module")
def program():
    return torch.export.export(Mixed.seeded(), X, dynamic_shapes=SHAPES)


@pytest.fixture(scope="module")
def static(program):
    """XNNPACK's quantiser for every layer, with scales of four calls."""
    module, chosen = unlifted(program), dict.fromkeys(layers_of(unlifted(program)), "cpu:int8")
    observed, observers = prepared(module, chosen, schemes_for(["cpu:int8"]))
    for seed in range(4):
        observed(torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed)))
    return Recipe(chosen, {f"forward {k}": v for k, v in scales_of(observers).items()})


def test_layers_are_the_weights_in_graph_order(program):
    layers = layers_of(unlifted(program))
    assert {name: layer.kind for name, layer in layers.items()} == {
        "conv": "convolution",
        "block.0": "linear",
        "head": "linear",
    }
    assert layers["block.0"].work == 2 * 64 * 64


def error(folder, layers, scales=None):
    """The largest error of the .pte over calls in several sizes, relative to the largest value."""
    lowerer = Lowerer([Precision(**Recipe(layers, scales or {}).to_options()), "cpu"])
    lowered = lowerer.lower(Mixed.seeded(), X, dynamic_shapes=SHAPES)
    path, eager, worst = lowered.save(folder / "net.pte", verify=True), Mixed.seeded(), 0.0
    with torch.no_grad():
        for rows in (1, 4, 2):
            x = torch.randn(rows, 3, 8, 8, generator=torch.Generator().manual_seed(9 + rows))
            (got,), wanted = run(path, [x]).outputs, eager(x)
            worst = max(worst, float((got - wanted).abs().max() / wanted.abs().max()))
    return worst, lowered


@pytest.mark.suite
@pytest.mark.parametrize(
    ("scheme", "least", "most"),
    [("fp16", 1e-6, 2e-3), ("8da8w", 1e-4, 2e-2), ("8da4w", 5e-3, 0.2), ("int8w", 1e-4, 2e-2)],
)
def test_a_scheme_of_torchao_computes_nearly_the_same_in_several_sizes(
    tmp_path, scheme, least, most
):
    worst, _ = error(tmp_path, {"block.0": scheme, "head": scheme})
    assert least < worst < most


@pytest.mark.suite
def test_static_layers_and_float_layers_mix(static, tmp_path):
    chosen = {"conv": "cpu:int8", "block.0": "8da8w"}
    worst, lowered = error(tmp_path, chosen, static.scales)
    assert 1e-4 < worst < 5e-2
    # The ledger has the precision of each node.
    ledger = lowered.plan.methods[0].ledger
    layers = {e.module: e.precision for e in ledger if "linear" in e.op or "convolution" in e.op}
    assert layers == {"conv": "int8", "block.0": "8da8w", "head": "float32"}
    owners = {e.module: e.owner for e in lowered.plan["forward"].ledger if "linear" in e.op}
    assert owners == {"block.0": "cpu", "head": "cpu"}


def test_diff_counts_the_nodes_of_each_scheme():
    def plan(layers):
        return Lowerer([Precision(layers=layers), "cpu"]).plan(Mixed.seeded(), X)

    mixed, same = plan(["block.0 = 8da8w", "head = 8da4w"]), plan(["head = 8da8w"])
    assert {"8da8w", "8da4w"} < mixed["forward"].ledger.precisions()["cpu"].keys()
    figures = {f.what: (f.before, f.after) for f in diff(mixed, same).figures}
    assert figures["forward: nodes of cpu in 8da4w"] == (5, 0)
    assert "forward: nodes of cpu in 8da8w" not in figures


@pytest.mark.suite
def test_the_bytes_are_the_same_in_another_process_without_data(static, tmp_path):
    registry = tmp_path / "registry.toml"
    lines = static.to_options()
    registry.write_text(
        f"[plugins.precision.options]\nlayers = {json.dumps(lines['layers'])}\n"
        f"scales = {json.dumps(lines['scales'])}\n[plugins.cpu]\n"
    )
    script = (
        "import torch; from support.models.small import Mixed; from etdev import Lowerer\n"
        "x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))\n"
        "Lowerer(registry='registry.toml', cache=False).lower(Mixed.seeded(), (x,)).save(PATH)"
    )
    for name in ("one", "two"):
        code = script.replace("PATH", repr(f"{name}.pte"))
        env = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": str(len(name) + ord(name[0]))}
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    one, two = ((tmp_path / f"{name}.pte").read_bytes() for name in ("one", "two"))
    assert one == two


def test_a_layer_that_is_called_twice_has_one_scheme():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(32, 32)

        def forward(self, x):
            return self.linear(torch.relu(self.linear(x)))

    x = torch.randn(3, 32)
    program = torch.export.export(Twice().eval(), (x,))
    changed = apply(Recipe({"linear": "8da8w"}), program, "forward", schemes_for([]))
    expected = program.module()(x)
    got = changed.module()(x)
    assert not torch.equal(got, expected)
    torch.testing.assert_close(got, expected, atol=2e-2, rtol=0)
    # The given program is as it was.
    assert torch.equal(program.module()(x), expected)


@pytest.mark.parametrize(
    ("layers", "what"),
    [
        ({"conv": "8da4w"}, r"8da4w takes no convolution \(conv\)"),
        ({"head": "fp3"}, "there is no scheme 'fp3'"),
        ({"head": "cpu:int8"}, "the recipe has no scale for"),
        ({"head": "nobody:int8"}, "nobody: not installed"),
        ({"head": "fp16", "tail": "8da8w"}, "no method has the recipe's layer 'tail'"),
        ({"tail": "8da8w"}, "no method has the recipe's layer 'tail'"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused_by_name(layers, what):
    lowerer = Lowerer([Precision(**Recipe(layers).to_options()), "cpu"])
    with pytest.raises(Exception, match=what):
        lowerer.plan(Mixed.seeded(), X)


def test_a_method_without_the_layers_of_a_recipe_stays_as_it_is():
    x, first, second = (torch.ones(1, 32),), nn.Linear(32, 8), nn.Sequential(nn.Linear(32, 4))
    methods = {"first": (first.eval(), x), "second": (second.eval(), x)}
    plan = Lowerer([Precision(["0 = 8da8w"]), "cpu"]).plan(methods)
    ops = {method.method: {entry.op for entry in method.ledger} for method in plan.methods}
    assert any("quantize" in op for op in ops["second"])
    assert not any("quantize" in op for op in ops["first"])


def test_rows_that_do_not_fill_a_group_are_refused():
    layer = layers_of(unlifted(torch.export.export(nn.Linear(20, 8), (torch.ones(1, 20),))))
    problem = schemes_for([])["8da4w"].problem(next(iter(layer.values())))
    assert problem == "needs rows of a multiple of 32, but they have 20"


def test_lines_of_another_form_are_refused_with_the_line(tmp_path):
    path = tmp_path / "registry.toml"
    path.write_text('[plugins.precision.options]\nlayers = ["conv 8da8w"]\n')
    with pytest.raises(PluginError, match="'conv 8da8w', write 'name = value'"):
        Lowerer(["precision"], registry=path)


def test_a_quantiser_leaves_positions_as_they_are():
    """XNNPACK's makes float32 tensors of the numbers that are added."""

    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            rows = self.linear(x) + 1
            return rows[torch.arange(2) + 1]

    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    module = unlifted(torch.export.export(Shifted().eval(), (x,)))
    expected = module(x)
    observed, observers = prepared(module, {"linear": "cpu:int8"}, schemes_for(["cpu:int8"]))
    torch.testing.assert_close(observed(x), expected)
    assert len(scales_of(observers)) == 3


def test_a_quantiser_that_can_not_be_made_names_its_plugin(program):
    def broken():
        raise ImportError("no nncf")

    scheme = Scheme("npu:int8", 8, ("linear",), quantizer=broken)
    with pytest.raises(Exception, match=r"^npu: its quantiser npu:int8 can't be made: no nncf"):
        prepared(unlifted(program), {"head": "npu:int8"}, {"npu:int8": scheme})


def test_without_a_recipe_the_plugin_stands_nowhere():
    listed = json.loads(succeeds("plugins --json"))["plugins"]
    assert "precision" not in {row["name"] for row in listed}
    idle, named = Lowerer(), Lowerer(["precision", "cpu"])
    assert "precision" not in {plugin.name for plugin in idle.plugins}
    assert next(iter(named.plugins)).name == "precision"
