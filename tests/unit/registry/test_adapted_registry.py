"""Partitioners named in registry.toml: found, trusted, made, asked and listed like plugins."""

import json
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from support.models import nets

from etdev import Lowerer, registry
from etdev.cli.main import main
from etdev.errors import PluginError, RegistryError

XNNPACK = "executorch.backends.xnnpack.partition.xnnpack_partitioner"
EXECUTORCH = f"executorch {version('executorch')}"
MODULE = """
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

class Own(XnnpackPartitioner):
    pass

def made(single):
    return XnnpackPartitioner(per_op_mode=single)

ready = XnnpackPartitioner()
number = 7
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user that no distribution has."""
    (tmp_path / "own_parts.py").write_text(MODULE)
    (tmp_path / "broken_parts.py").write_text("raise RuntimeError('no SDK found\\nsee the docs')")
    (tmp_path / "lacking_parts.py").write_text("import an_sdk_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("own_parts", None)


def parsed(text, tmp_path):
    return registry.parse(text, tmp_path / "registry.toml")


def entry(target, more="", name="parts"):
    return f'[plugins.{name}]\npartitioner = "{target}"\n{more}\n'


def test_a_partitioner_in_the_registry_is_asked(tmp_path):
    text = entry(f"{XNNPACK}:XnnpackPartitioner", "[plugins.parts.options]\nper_op_mode = true")
    lowerer = Lowerer(registry=parsed(text, tmp_path))
    plugin, _ = lowerer.plugins
    assert plugin.title == f"parts ({EXECUTORCH})"
    plan = lowerer.plan(*nets.conv_net())
    assert {partition.plugin for partition in plan.partitions} == {"parts"}
    # A delegate per op and its activation, as the option says.
    assert max(len(partition.nodes) for partition in plan.partitions) == 2
    assert plan.plugins == (("parts", version("executorch")), ("portable", version("etdev")))


def test_a_device_pin_holds(tmp_path):
    text = entry(f"{XNNPACK}:XnnpackPartitioner", 'device = "cuda:1"')
    plan = Lowerer(registry=parsed(text, tmp_path)).plan(*nets.mlp())
    assert {(str(p.device), p.device_source) for p in plan.partitions} == {("cuda:1", "pinned")}


def test_it_can_be_chosen_by_name_among_others(tmp_path):
    text = entry(f"{XNNPACK}:XnnpackPartitioner")
    plugins = Lowerer(["cpu", "parts"], registry=parsed(text, tmp_path)).plugins
    assert [plugin.name for plugin in plugins] == ["cpu", "parts", "portable"]


def test_it_beats_an_installed_plugin_of_the_same_name(tmp_path):
    text = entry(f"{XNNPACK}:XnnpackPartitioner", name="cpu")
    plugin, _ = Lowerer(registry=parsed(text, tmp_path)).plugins
    assert plugin.title == f"cpu ({EXECUTORCH})"


@pytest.mark.parametrize("target", ["Own", "made", "ready"])
def test_a_class_a_function_or_an_object_of_ones_own_will_do(target, module):
    more = "[plugins.parts.options]\nsingle = true" if target == "made" else ""
    text = entry(f"own_parts:{target}", more)
    plugin, _ = Lowerer(registry=parsed(text, module)).plugins
    assert plugin.title == "parts (own_parts)"
    assert isinstance(plugin.implementation.partitioner, XnnpackPartitioner)


@pytest.mark.parametrize(
    ("target", "more", "text"),
    [
        ("not_there.parts:P", "", "parts: not_there.parts:P is not installed; "
         "install its package, or remove it from the registry"),
        ("own_parts.sub:P", "", "parts (own_parts): import failed with ModuleNotFoundError: "
         "No module named 'own_parts.sub'; 'own_parts' is not a package; "
         "install what own_parts.sub needs, or remove it from the registry"),
        ("own_parts:Missing", "", "parts (own_parts): import failed with AttributeError: "
         "module 'own_parts' has no attribute 'Missing'; "
         "install what own_parts needs, or remove it from the registry"),
        ("broken_parts:P", "", "parts (broken_parts): import failed with RuntimeError: "
         "no SDK found; install what broken_parts needs, or remove it from the registry"),
        ("lacking_parts:P", "", "parts (lacking_parts): import failed with ModuleNotFoundError: "
         "No module named 'an_sdk_that_is_not_there'; "
         "install what lacking_parts needs, or remove it from the registry"),
        ("own_parts:made", "", "parts (own_parts): could not be made: TypeError: "
         "made() missing 1 required positional argument: 'single'; check its options"),
        ("own_parts:ready", "[plugins.parts.options]\na = 1",
         "parts (own_parts): takes no options, got a; remove them"),
        ("own_parts:number", "", "parts: 7 is not an ExecuTorch Partitioner; "
         "give an object of a class that subclasses Partitioner"),
    ],
)  # fmt: skip
def test_what_can_not_be_had_is_named_with_a_cure(target, more, text, module):
    with pytest.raises(PluginError) as caught:
        Lowerer(registry=parsed(entry(target, more), module))
    assert str(caught.value) == text.replace("FILE", str(module / "registry.toml"))


@pytest.mark.parametrize("trusted", [[], ["etdev-cpu"]])
def test_untrusted_code_is_not_imported(trusted, module):
    text = f"trusted = {json.dumps(trusted)}\n{entry('broken_parts:P')}"
    with pytest.raises(PluginError) as caught:
        Lowerer(registry=parsed(text, module))
    assert str(caught.value) == (
        f"parts: broken_parts is not trusted by {module / 'registry.toml'}, "
        f"which trusts {', '.join(trusted) or 'nothing'}; add it to trusted"
    )
    assert "broken_parts" not in sys.modules


def test_trust_goes_by_the_partitioners_distribution(tmp_path):
    text = entry(f"{XNNPACK}:XnnpackPartitioner")
    for trusted in ('["etdev-cpu"]', '["xnnpack", "parts"]'):
        with pytest.raises(PluginError, match="executorch is not trusted"):
            Lowerer(registry=parsed(f"trusted = {trusted}\n{text}", tmp_path))
    assert Lowerer(registry=parsed(f'trusted = ["executorch"]\n{text}', tmp_path)).plugins


def test_an_optional_one_is_left_out_without_its_package_or_trust(module):
    missing = entry("not_there.parts:P", "optional = true")
    untrusted = entry("broken_parts:P", "optional = true", name="broken")
    table = parsed(f'trusted = ["etdev-cpu"]\n{missing}{untrusted}[plugins.cpu]\n', module)
    assert [plugin.name for plugin in Lowerer(registry=table).plugins] == ["cpu", "portable"]


@pytest.mark.parametrize("value", ['"no.colon"', '""', '"a b:C"', '"a:"'])
def test_what_is_no_module_and_object_is_refused(value, tmp_path):
    with pytest.raises(RegistryError) as caught:
        parsed(f"[plugins.parts]\npartitioner = {value}\n", tmp_path)
    cure = 'write "package.module:Class"'
    assert str(caught.value) == (
        f"{tmp_path / 'registry.toml'}: plugins.parts partitioner is "
        f"{value.replace(chr(34), chr(39))}; {cure}"
    )


def test_it_is_listed_with_the_plugins(module):
    file = module / "registry.toml"
    file.write_text(entry(f"{XNNPACK}:XnnpackPartitioner") + entry("broken_parts:P", name="broken"))
    done = CliRunner().invoke(main, ["plugins", "--json", "--registry", str(file)])
    assert done.exit_code == 0
    rows = {row["name"]: row for row in json.loads(done.output)["plugins"]}
    listed = rows["parts"]
    assert (listed["distribution"], listed["status"]) == ("executorch", "not probed")
    assert {"claim_nodes", "claim_constants", "resolve_device"} <= set(listed["hooks"])
    assert (rows["broken"]["distribution"], rows["broken"]["status"]) == (
        "broken_parts",
        "import failed with RuntimeError: no SDK found; "
        "install what broken_parts needs, or remove it from the registry",
    )
