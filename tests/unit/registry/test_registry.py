"""registry.toml: what it says, and which line is wrong with it."""

from pathlib import Path

import pytest

from etdev import Budget, Limits, registry
from etdev.errors import RegistryError
from etdev.registry import PluginEntry, Registry
from etdev.registry.registry import registry_of
from etdev.schema.device import CPU, Device

FILE = Path("registry.toml")


def test_a_plugin_says_whether_it_is_optional_and_what_it_is_given():
    text = "[plugins.trt]\noptional = true\n[plugins.trt.options]\nlevel = 3\n[plugins.cpu]\n"
    assert registry.parse(text, FILE).entries == (
        PluginEntry("trt", optional=True, options={"level": 3}),
        PluginEntry("cpu"),
    )


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ('device = "cuda:1"', {"*": Device("cuda", 1)}),
        ('device = { forward = "cuda:0", "*" = "cpu" }', {"forward": Device("cuda"), "*": CPU}),
        ('[plugins.trt.device]\nprefill = "cuda"', {"prefill": Device("cuda")}),
    ],
)
def test_a_device_pins_all_methods_or_each_by_name(text, devices):
    assert registry.parse(f"[plugins.trt]\n{text}\n", FILE).entry("trt").devices == devices


def test_pins_limits_and_a_budget_are_read():
    text = """
    [plugins.cpu]
    min_nodes = 3
    max_partitions = 2
    [[pin]]
    module = "encoder.layer.0"
    plugin = "cpu"
    [[pin]]
    op = "aten._softmax.*"
    method = "forward"
    plugin = "portable"
    [budget]
    max_fallback_nodes = 10
    fallback_ops = ["aten.add.Tensor"]
    """
    table = registry.parse(text, FILE)
    assert table.entry("cpu").limits == Limits(min_nodes=3, max_partitions=2)
    assert [str(pin) for pin in table.pins] == [
        "module=encoder.layer.0:plugin=cpu",
        "op=aten._softmax.*:method=forward:plugin=portable",
    ]
    assert table.budget == Budget(10, ("aten.add.Tensor",))


def test_an_empty_file_lists_nothing_and_trusts_all():
    table = registry.parse("", FILE)
    assert table == Registry(path=FILE)
    assert (table.unlisted, table.strict, table.trusts("anything")) == ("ignore", False, True)


@pytest.mark.parametrize("name", ["etdev-cpu", "etdev_cpu", "ETDEV.CPU", "etdev--cpu"])
def test_trusted_names_are_compared_as_pip_compares_them(name):
    table = registry.parse('trusted = ["Etdev_Cpu"]', FILE)
    assert (table.trusts(name), table.trusts("etdev-cpu2")) == (True, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plugin = 1", ": plugin is an unknown key; did you mean plugins?"),
        ("strict = true\n\nzzz = 1",
         ": zzz is an unknown key; "
         "valid are plugins, trusted, unlisted, pin, budget, strict, simplify, share_state, "
         "portable, cache, targets, on_failure"),
        ("[plugins.trt]\noptonal = true",
         ": plugins.trt.optonal is an unknown key; did you mean optional?"),
        ("[plugins.trt]\nzzz = 1",
         ": plugins.trt.zzz is an unknown key; "
         "valid are min_nodes, max_partitions, hook_timeout_s, compile_timeout_s, methods, "
         "optional, device, options, partitioner"),
        ("[plugins.cpu]\noptional = true\n[plugins.trt]\noptional = 'yes'",
         ": plugins.trt.optional is 'yes'; it must be true or false"),
        ("[plugins.trt]\noptions = 3", ": plugins.trt.options is 3; it must be a table"),
        ("[plugins]\ntrt = 3",
         ": plugins.trt is 3; it must be a table"),
        ('trusted = "etdev-cpu"', ": trusted is 'etdev-cpu'; it must be a list"),
        ('\nunlisted = "no"',
         ": unlisted is 'no'; it must be one of 'first', 'last', 'ignore'"),
        ('[[pin]]\nop = "a"\nplugin = "cpu"\n[[pin]]\nop = "b"\nplugn = "cpu"\nplugin = "a"',
         ": pin[1].plugn is an unknown key; did you mean plugin?"),
        ('strict = true\n[[pin]]\nplugin = "cpu"\nmethod = "forward"',
         ": pin[0] has none of module, op, node; "
         'write module = "encoder.layer.0" with plugin = "cpu"'),
        ('[[pin]]\nop = "a"', ": pin[0].plugin required field missing"),
        ('[pin]\nop = "a"', ": pin is {'op': 'a'}; it must be a list"),
        ("[plugins.cpu]\nmin_nodes = 0",
         ": plugins.cpu 'min_nodes' must be >= 1: 0"),
        ("[plugins.cpu]\noptional = true\nmax_partitions = true",
         ": plugins.cpu.max_partitions is True; it must be a whole number"),
        ("[budget]\nmax_fallback = 1",
         ": budget.max_fallback is an unknown key; did you mean max_fallback_nodes?"),
        ("[budget]\nmax_fallback_nodes = 1\nfallback_ops = [3]",
         ": budget.fallback_ops[0] is 3; it must be text"),
        ('[plugins.trt]\ndevice = "gpu"',
         ": plugins.trt.device unknown type 'gpu'; "
         "valid are cpu, cuda:0 to cuda:127, and kinds of plugins' own, as npu:0"),
        ('[plugins.trt.device]\nforward = "cuda:128"',
         ": plugins.trt.device index 128 of cuda is out of range; "
         "valid are cpu, cuda:0 to cuda:127, and kinds of plugins' own, as npu:0"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_file_and_key(text, message):
    with pytest.raises(RegistryError) as caught:
        registry.parse(text, FILE)
    assert str(caught.value) == f"registry.toml{message}"


def test_all_mistakes_are_named():
    text = """
    [[pin]]
    op = ""
    plugin = 3
    [plugins.cpu]
    optional = "yes"
    min_nodes = "0"
    device = { forward = "gpu" }
    """
    with pytest.raises(RegistryError) as caught:
        registry.parse(text, FILE)
    assert str(caught.value).splitlines() == [
        "registry.toml: has 4 mistakes",
        "  plugins.cpu.min_nodes is '0'; it must be a whole number",
        "  plugins.cpu.optional is 'yes'; it must be true or false",
        "  plugins.cpu.device unknown type 'gpu'; "
        "valid are cpu, cuda:0 to cuda:127, and kinds of plugins' own, as npu:0",
        "  pin[0].plugin is 3; it must be text",
    ]


def test_a_syntax_error_is_named_with_its_line():
    with pytest.raises(RegistryError) as caught:
        registry.parse("strict = true\nunlisted = first\n", FILE)
    assert str(caught.value) == (
        "registry.toml: is not valid TOML: Invalid value (at line 2, column 12); correct that line"
    )


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    file = tmp_path / "registry.toml"
    file.write_bytes(b"# Ger\xe4te\n")
    with pytest.raises(RegistryError) as caught:
        registry.load(file)
    assert str(caught.value) == f"{file}: is not UTF-8 text; save it as UTF-8"


def test_a_folder_is_not_a_registry(tmp_path):
    with pytest.raises(RegistryError) as caught:
        registry.load(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: cannot be read (Is a directory); give the path of a registry.toml"
    )


def test_the_file_in_the_working_directory_wins_over_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert registry.find() == registry.default_path()
    Path("registry.toml").write_text("[plugins.mine]\n")
    assert registry.find() == Path("registry.toml")
    assert registry.load().names == ("mine",)


def test_the_shipped_file_lists_the_known_plugins_and_asks_others_first():
    shipped = registry.load(registry.default_path())
    assert shipped.names == ("trt", "cuda", "openvino", "cpu")
    assert all(entry.optional for entry in shipped.entries)
    assert (shipped.unlisted, shipped.trusted, shipped.strict) == ("first", None, False)


PROJECT = """
[project]
name = "mine"

[tool.etdev]
strict = true

[tool.etdev.plugins.cpu]
optional = true
min_nodes = 3

[[tool.etdev.pin]]
op = "aten.add.*"
plugin = "cpu"
"""


def test_a_pyproject_may_hold_the_registry(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "pyproject.toml"
    project.write_text("[project]\nname = 'mine'\n")
    assert registry.find() == registry.default_path()
    project.write_text(PROJECT)
    table = registry.load()
    assert (table.path, table.strict, table.names) == (Path("pyproject.toml"), True, ("cpu",))
    assert (table.entry("cpu").limits.min_nodes, len(table.pins)) == (3, 1)
    (tmp_path / "registry.toml").write_text("[plugins.trt]\n")
    assert registry.load().names == ("trt",)
    assert registry.load("pyproject.toml").names == ("cpu",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROJECT.replace("strict", "strct"),
         ": strct is an unknown key; did you mean strict?"),
        ("[tool.etdev]\nstrict = tru",
         ": is not valid TOML: Invalid value (at line 2, column 10); correct that line"),
        ("[tool]\netdev = 3\n",
         ": has no table [tool.etdev]; add it, or give the path of a registry.toml"),
    ],
)  # fmt: skip
def test_the_registry_in_a_pyproject_is_checked_as_any(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text(text)
    with pytest.raises(RegistryError) as caught:
        registry.load()
    assert str(caught.value).startswith("pyproject.toml" + message)


def test_a_registry_may_be_given_as_its_tables():
    tables = {
        "strict": True,
        "plugins": {"cpu": {"min_nodes": 3}},
        "pin": [{"op": "a", "plugin": "cpu"}],
    }
    table = registry_of(tables)
    assert (table.path, table.strict, table.names) == (None, True, ("cpu",))
    assert (table.entry("cpu").limits.min_nodes, table.pins[0].op) == (3, "a")
    with pytest.raises(RegistryError) as caught:
        registry_of({"plugins": {"cpu": {"min_node": 3}}})
    said = "registry.plugins.cpu.min_node: is an unknown key; did you mean min_nodes?"
    assert str(caught.value) == said
