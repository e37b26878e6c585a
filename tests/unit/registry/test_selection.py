"""Plugins: who is found, in which order, what is wrong with the others, and how they are asked."""

import importlib
import importlib.metadata
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from support.shell.distributions import put

from etdev import hookspecs
from etdev.errors import EtdevWarning, PluginError, install_hint
from etdev.hookspecs import hookimpl
from etdev.registry import PluginEntry, Registry, parse, plugin, selection
from etdev.registry.extensions import EXTRAS
from etdev.registry.registry import own_distributions, tomllib
from etdev.schema.device import CPU, Device, Probe

GOOD = """
from etdev import hookimpl

class Plugin:
    @hookimpl
    def claim_nodes(self, program): ...
"""
WITH_OPTIONS = """
from typing import Literal

from attrs import field, frozen, validators
from etdev import hookimpl

@frozen
class Plugin:
    fast: bool = False
    level: int = 1
    share: float = 0.5
    names: tuple[str, ...] = ()
    mode: str = field(default="a", validator=validators.in_(("a", "b")))
    size: Literal["small", 8] = "small"

    @hookimpl
    def claim_nodes(self): ...
"""
KNOWN = "its options are fast, level, share, names, mode, size"
HOOKS = ", ".join(plugin.HOOKS)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a plugin where no other is installed: a module, and what pip writes beside it."""
    bare = [
        folder
        for folder in sys.path
        if not any(
            found.entry_points.select(group="etdev")
            for found in importlib.metadata.distributions(path=[folder])
        )
    ]
    # First, as it notes the path that monkeypatch restores in the end.
    monkeypatch.syspath_prepend(tmp_path)
    sys.path[:] = [str(tmp_path), *bare]
    monkeypatch.delenv("ETDEV_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    modules = []

    def installed(name, source=GOOD, distribution=None, target=":Plugin"):
        distribution = distribution or f"etdev-{name}"
        put(tmp_path, distribution, source, {"etdev": {name: f"{{module}}{target}"}})
        modules.append(distribution.replace("-", "_"))

    yield installed
    for module in modules:
        sys.modules.pop(module, None)


def listed(*names, **kwargs):
    return Registry(tuple(PluginEntry(name) for name in names), **kwargs)


def names(registry, wanted=None):
    """The plugins that are asked, but for the built-in one, which comes last."""
    *asked, last = [plugin.name for plugin in selection.select(registry, wanted)]
    assert last == "portable"
    return asked


def found(registry):
    """What `etdev plugins` lists, but for the built-in one, which comes last."""
    *findings, last = selection.discover(registry)
    assert (last.name, last.problem, last.asked) == ("portable", "", True)
    return findings


def refusal(registry, wanted=None):
    with pytest.raises(PluginError) as caught:
        selection.select(registry, wanted)
    return str(caught.value)


class Backend:
    def __init__(self, name="fake"):
        self.name = name

    @hookimpl
    def claim_nodes(self, program, method):
        return f"{self.name} on {method}"


def test_plugins_are_asked_in_the_order_of_the_registry_not_of_their_names(install):
    for name in ("a", "b", "c"):
        install(name)
    assert names(listed("c", "a", "b")) == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("unlisted", "order"),
    [
        ("first", ["a", "d", "c", "b"]),
        ("last", ["c", "b", "a", "d"]),
        ("ignore", ["c", "b"]),
    ],
)
def test_unlisted_plugins_come_by_name_where_the_registry_says(install, unlisted, order):
    for name in ("d", "c", "b", "a"):
        install(name)
    assert names(listed("c", "b", unlisted=unlisted)) == order


def test_a_plugin_carries_its_distribution_version_and_hooks(install):
    install("a", distribution="my-backends")
    plugin, _ = selection.select(listed("a"))
    assert (plugin.name, plugin.distribution, plugin.version) == ("a", "my-backends", "1.0")
    assert (plugin.title, plugin.hooks) == ("a (my-backends 1.0)", ("claim_nodes",))


def test_a_module_is_a_plugin_too(install):
    source = "from etdev import hookimpl\n@hookimpl\ndef claim_nodes(method): return method\n"
    install("a", source, target="")
    plugin, _ = selection.select(listed("a"))
    assert plugin.manager.hook.claim_nodes(
        program=None, method="forward", taken={}, partitions={}
    ) == ["forward"]


def plugin_class(body):
    return f"from etdev import hookimpl\nclass Plugin:\n{body}\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (plugin_class(" @hookimpl\n def claim_nods(self, program): ..."),
         "claim_nods is not a hook; did you mean claim_nodes?"),
        (plugin_class(" @hookimpl\n def zzz(self): ..."),
         f"zzz is not a hook; the hooks are {HOOKS}"),
        (plugin_class(" @hookimpl\n def claim_nodes(self, progam): ..."),
         "hookimpl definition: claim_nodes(progam) Argument(s) {'progam'} are declared in the "
         "hookimpl but can not be found in the hookspec; see etdev/hookspecs.py"),
        ("def Plugin(): ...", f"has no hooks; the hooks are {HOOKS}"),
        (plugin_class(" @hookimpl\n def probe(self): ...\n def claim_nodes(self, program): ..."),
         "claim_nodes is not marked as a hook; put @hookimpl above it"),
        (plugin_class(" pass"), f"has no hooks; the hooks are {HOOKS}"),
        (plugin_class(" pass\ndel Plugin"),
         "import failed with AttributeError: module 'etdev_a' has no attribute 'Plugin'; "
         "reinstall or uninstall it"),
        ("import no_such_module_at_all",
         "import failed with ModuleNotFoundError: No module named 'no_such_module_at_all'; "
         "reinstall or uninstall it"),
        ("raise OSError('libnvinfer.so.10 is missing\\nand more')",
         "import failed with OSError: libnvinfer.so.10 is missing; reinstall or uninstall it"),
        ("raise SystemExit('usage: a FILE')",
         "import failed with SystemExit: usage: a FILE; reinstall or uninstall it"),
        (plugin_class(" def __init__(self): raise OSError('no GPU')"),
         "could not be made: OSError: no GPU; check its options"),
    ],
)  # fmt: skip
def test_a_broken_plugin_stops_a_selection_named_with_its_distribution(install, source, message):
    install("a", source)
    assert refusal(listed("a")) == f"a (etdev-a 1.0): {message}"


def test_two_distributions_with_the_same_plugin_are_both_named(install):
    install("a", distribution="etdev-one")
    install("a", distribution="etdev-two")
    message = "a: is offered by etdev-one and etdev-two; uninstall one of them"
    assert refusal(listed("a")) == message


def test_a_distribution_that_is_on_the_path_twice_is_one(install, tmp_path, monkeypatch):
    install("a")
    monkeypatch.syspath_prepend(f"{tmp_path}/.")
    assert names(listed("a")) == ["a"]


def test_a_listed_plugin_that_is_missing_is_named_with_its_cure(install):
    assert refusal(listed("a")) == "a: not installed; none is installed"
    install("c")
    install("b")
    message = "a: not installed; installed are b, c"
    assert refusal(listed("a")) == message
    assert refusal(Registry(), ["a"]) == message


def test_pip_is_told_of_etdevs_own_distributions_only(install):
    """Anyone can upload an etdev-something."""
    folders = {path.name for path in (Path(__file__).parents[3] / "plugins").glob("etdev-*")}
    extras = {f"etdev-{extra}" for own in EXTRAS.values() for extra in own.values()}
    own = own_distributions()
    assert {*own.values(), *extras} == folders
    for folder in own.values():
        project = Path(__file__).parents[3] / "plugins" / folder / "pyproject.toml"
        (name,) = tomllib.loads(project.read_text())["project"]["entry-points"]["etdev"]
        assert refusal(Registry(), [name]) == (
            f"{name}: not installed; {install_hint(own[name])} (none is installed)"
        )
    for name in ("transformers", "etdev", "etdev-cpu", "cpu2", "x"):
        assert "pip install" not in refusal(Registry(), [name])


def test_a_misspelt_plugin_is_corrected_with_the_registry_that_lists_it(install):
    install("tensor")
    text = "strict = true\n\n[plugins.tensro]\n"
    assert refusal(parse(text, Path("mine.toml"))) == (
        "tensro: not installed, but listed in mine.toml; did you mean tensor? "
        "(installed are tensor)"
    )
    assert refusal(Registry(), ["opnvino"]) == (
        "opnvino: not installed; did you mean openvino? (installed are tensor)"
    )


def test_all_names_are_checked_before_a_plugin_is_imported(install):
    install("bad", "raise SystemExit('imported')")
    assert refusal(Registry(), ["bad", "gone"]) == "gone: not installed; installed are bad"
    assert selection.names_of(Registry(), ["bad"]) == ["bad", "portable"]


def test_an_optional_plugin_that_is_missing_is_skipped(install):
    install("b")
    registry = Registry((PluginEntry("a", optional=True), PluginEntry("b")))
    assert names(registry) == ["b"]


def test_a_plugin_outside_the_trusted_list_is_not_even_imported(install):
    install("a")
    install("bad", "raise SystemExit('imported')")
    registry = Registry(
        (PluginEntry("bad", optional=True), PluginEntry("a")),
        trusted=("Etdev_A",),
        unlisted="first",
        path=Path("registry.toml"),
    )
    assert names(registry) == ["a"]
    assert [finding.problem for finding in found(registry)] == [
        "etdev-bad is not trusted by registry.toml, which trusts Etdev_A; add it to trusted",
        "",
    ]
    assert "etdev_bad" not in sys.modules


def test_an_unlisted_plugin_outside_the_trusted_list_is_skipped(install):
    install("bad", "raise SystemExit('imported')")
    assert names(Registry(trusted=(), unlisted="first")) == []


@pytest.mark.parametrize("wanted", [None, ["bad"]])
def test_a_plugin_outside_the_trusted_list_that_is_demanded_is_an_error(install, wanted):
    install("bad", "raise SystemExit('imported')")
    assert refusal(listed("bad", trusted=(), path=Path("registry.toml")), wanted) == (
        "bad: etdev-bad is not trusted by registry.toml, which trusts nothing; add it to trusted"
    )
    assert "etdev_bad" not in sys.modules


@pytest.mark.parametrize("other", ["etdev-aaa", "etdev-zzz"])
def test_a_distribution_outside_the_trusted_list_takes_no_name_from_one_inside(install, other):
    install("a")
    install("a", "raise SystemExit('imported')", distribution=other)
    registry = Registry((PluginEntry("a", optional=True),), trusted=("etdev-a",))
    assert [plugin.distribution for plugin in selection.select(registry)] == ["etdev-a", "etdev"]
    assert [finding.distribution for finding in found(registry)] == ["etdev-a"]


def test_with_autoload_off_only_what_is_demanded_is_imported(install, monkeypatch):
    install("a"), install("b"), install("c", "raise SystemExit('imported')")
    registry = Registry((PluginEntry("b"), PluginEntry("a", optional=True)), unlisted="first")
    monkeypatch.setenv("ETDEV_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert names(registry) == ["b"]
    assert names(registry, ["a"]) == ["a"]
    unloaded = "not loaded, as ETDEV_DISABLE_PLUGIN_AUTOLOAD is set; name it to load it"
    assert [(f.name, f.plugin is not None, f.problem) for f in found(registry)] == [
        ("b", True, ""),
        ("a", False, unloaded),
        ("c", False, unloaded),
    ]


def with_options(**options):
    return Registry((PluginEntry("a", options=options),))


def test_options_reach_the_class_of_a_plugin(install):
    install("a", WITH_OPTIONS)
    options = {"fast": True, "level": 3, "share": 1, "names": ["x", "y"], "mode": "b", "size": 8}
    plugin = selection.select(with_options(**options))[0].implementation
    assert (plugin.fast, plugin.level, plugin.share) == (True, 3, 1)
    assert (plugin.names, plugin.mode, plugin.size) == (("x", "y"), "b", 8)


def test_options_count_for_a_plugin_chosen_by_name_too(install):
    install("a", WITH_OPTIONS)
    assert selection.select(with_options(level=3), ["a"])[0].implementation.level == 3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fats": True}, "fats is an unknown key, did you mean fast?"),
        ({"fast": "false"}, "fast is 'false', it must be true or false"),
        ({"fast": 1, "level": True},
         "fast is 1, it must be true or false; level is True, it must be a whole number"),
        ({"level": 1.5}, "level is 1.5, it must be a whole number"),
        ({"names": ["x", 3]}, "names[1] is 3, it must be text"),
        ({"mode": "c"}, "'mode' must be in ('a', 'b') (got 'c')"),
        ({"size": "large"}, "size is 'large', it must be one of 'small', 8"),
        ({"size": 8.0}, "size is 8.0, it must be one of 'small', 8"),
        ({"size": ["small"]}, "size is ['small'], it must be one of 'small', 8"),
    ],
)  # fmt: skip
def test_wrong_options_are_named_with_their_value_and_the_known_ones(install, options, problem):
    install("a", WITH_OPTIONS)
    message = f"a (etdev-a 1.0): bad options: {problem}; {KNOWN}"
    assert refusal(with_options(**options)) == message


def test_options_of_a_plain_class_are_keyword_arguments(install):
    body = " def __init__(self, level=1): self.level = level\n @hookimpl\n def probe(self): ..."
    install("a", plugin_class(body))
    assert selection.select(with_options(level=3))[0].implementation.level == 3
    message = refusal(with_options(fast=True))
    assert message == (
        "a (etdev-a 1.0): could not be made: TypeError: "
        "Plugin.__init__() got an unexpected keyword argument 'fast'; check its options"
    )


def test_a_plugin_that_is_a_module_takes_no_options(install):
    install("a", "from etdev import hookimpl\n@hookimpl\ndef probe(): ...\n", target="")
    assert refusal(with_options(fast=True, level=3)) == (
        "a (etdev-a 1.0): takes no options, got fast, level; remove them"
    )


def test_names_and_objects_are_asked_in_the_order_given(install):
    install("a")
    install("b")
    assert names(listed("a", "b"), ["b", Backend("mine"), "a"]) == ["b", "mine", "a"]


def test_a_plugin_may_be_a_class():
    plugin, _ = selection.select(Registry(), [Backend])
    assert (plugin.name, plugin.title, plugin.distribution) == ("fake", "fake", "this process")


def test_a_plugin_without_a_name_is_called_as_its_class_or_module():
    class Nameless:
        @hookimpl
        def probe(self): ...

    module = ModuleType("my.backend")
    module.probe = hookimpl(lambda: None)
    assert names(Registry(), [Nameless, module]) == ["Nameless", "backend"]


def test_a_class_that_needs_arguments_is_refused():
    class Picky:
        def __init__(self, level): ...

    with pytest.raises(PluginError) as caught:
        selection.from_object(Picky)
    assert str(caught.value).startswith("Picky: could not be made: TypeError: ")
    assert caught.value.cure == "check its options"


@pytest.mark.parametrize(
    ("wanted", "who"),
    [
        (lambda: [Backend("a"), Backend("a")], "a"),
        (lambda: ["a", Backend("a")], "a"),
        (lambda: ["a", "b", "a"], "a"),
        (lambda: [Backend, Backend], "fake"),
    ],
)
def test_the_same_plugin_twice_is_refused(install, wanted, who):
    install("a")
    install("b")
    message = f"{who}: is given twice; give each plugin its own name"
    assert refusal(Registry(), wanted()) == message


@pytest.mark.parametrize("wanted", ["cpu", {"cpu": "cuda:0"}, 3])
def test_what_is_no_list_of_plugins_is_refused(wanted):
    message = f'plugins: {wanted!r} is not a list; write plugins=["cpu"]'
    assert refusal(Registry(), wanted) == message


def test_an_object_that_is_no_plugin_is_refused():
    assert refusal(Registry(), [3]) == f"int: has no hooks; the hooks are {HOOKS}"
    cure = 'make a plugin of a Partitioner: etdev.adapt(..., name="XnnpackPartitioner")'
    assert (
        refusal(Registry(), [XnnpackPartitioner()]) == f"XnnpackPartitioner: has no hooks; {cure}"
    )


def test_discovery_lists_the_broken_ones_and_goes_on(install):
    install("good")
    install("import", "raise ImportError('no libfoo')")
    install("exit", "raise SystemExit(3)")
    install("typo", plugin_class(" @hookimpl\n def prob(self): ..."))
    install("twice", distribution="etdev-one")
    install("twice", distribution="etdev-two")
    install("probe", plugin_class(" @hookimpl\n def probe(self): raise KeyError('gpu')"))
    install("answer", plugin_class(" @hookimpl\n def probe(self): return 'cuda'"))
    install("raises", plugin_class(" @hookimpl\n def probe(self): raise SystemExit"))
    registry = listed("missing", "typo", unlisted="last")
    assert [(finding.name, finding.problem) for finding in found(registry)] == [
        ("missing", "not installed; installed are answer, exit, good, import, probe, raises, "
                    "twice, typo"),
        ("typo", "prob is not a hook; did you mean probe?"),
        ("answer", "probe returned 'cuda'; return a Probe, such as Probe([\"cpu\"])"),
        ("exit", "import failed with SystemExit: 3; reinstall or uninstall it"),
        ("good", ""),
        ("import", "import failed with ImportError: no libfoo; reinstall or uninstall it"),
        ("probe", "probe raised KeyError: 'gpu'; the cause is chained below"),
        ("raises", "probe raised SystemExit; the cause is chained below"),
        ("twice", "is offered by etdev-one and etdev-two; uninstall one of them"),
    ]  # fmt: skip


def test_discovery_tells_what_a_plugin_finds_here(install):
    source = plugin_class(
        " @hookimpl\n def probe(self):\n"
        "  from etdev import Probe\n"
        "  return Probe(['cuda:1'], 'no ptxas; apt install cuda-nvcc')"
    )
    install("a", source)
    (finding,) = found(listed("a"))
    assert (finding.distribution, finding.version, finding.plugin.name) == ("etdev-a", "1.0", "a")
    assert finding.probed == Probe([Device("cuda", 1)], "no ptxas; apt install cuda-nvcc")


def test_a_plugin_without_a_probe_is_fit_on_the_cpu(install):
    install("a")
    (finding,) = found(listed("a"))
    assert finding.probed == Probe([CPU])


def test_discovery_shows_ignored_plugins_with_the_reason(install):
    install("a")
    (finding,) = found(Registry(path=Path("registry.toml")))
    assert (finding.name, finding.plugin, finding.problem) == ("a", None, "not in registry.toml")


@pytest.mark.parametrize(
    "registry", [Registry(unlisted="first"), Registry((PluginEntry("a", optional=True),))]
)
def test_a_broken_plugin_that_nobody_named_or_that_is_optional_is_refused(install, registry):
    install("a", "raise OSError('gone')")
    install("b")
    with pytest.raises(PluginError) as caught:
        selection.select(registry)
    assert str(caught.value) == (
        "a (etdev-a 1.0): import failed with OSError: gone; reinstall or uninstall it"
    )
    assert repr(caught.value.__cause__) == "OSError('gone')"
    assert names(registry, ["b"]) == ["b"]


@pytest.mark.parametrize("value", [" plugin", ":", "= x", "etdev_a plugin:Plugin", "1a:b c"])
def test_an_entry_point_that_cant_be_read_is_named(install, value):
    install("a", target=value)
    install("b")
    assert refusal(listed("a", "b"), ["a"]).startswith("a (etdev-a 1.0): import failed with ")
    assert names(listed("a", "b"), ["b"]) == ["b"]
    assert [finding.name for finding in found(listed("a", "b"))] == ["a", "b"]


def named(name):
    plugin = type("Plugin", (), {"claim_nodes": hookimpl(lambda self: None), "name": name})
    return plugin()


NOT_A_NAME = 'use letters, digits, - and _, such as name = "my-npu"'


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a.b", "a/b", "a=b", "a:b", "-a", "a-", "ä", "a\n", 3, b"a", True]
)
def test_an_odd_name_is_refused(name):
    with pytest.raises(PluginError) as caught:
        selection.from_object(named(name))
    assert str(caught.value) == f"plugins: {name!r} is not a name for a plugin; {NOT_A_NAME}"


@pytest.mark.parametrize("name", ["a", "my-npu", "My_NPU2", "_a", "0"])
def test_an_ordinary_name_is_taken(name):
    assert selection.from_object(named(name)).name == name


@pytest.mark.parametrize("name", ["portable", "foreign"])
def test_a_name_of_the_plan_is_reserved(name):
    with pytest.raises(PluginError, match=f"^{name}: is reserved for .*; rename the plugin$"):
        selection.from_object(named(name))


def test_a_hook_that_wraps_is_refused():
    class Wrapper:
        @hookimpl(wrapper=True)
        def claim_nodes(self):
            return (yield)

    with pytest.raises(PluginError) as caught:
        selection.from_object(Wrapper)
    assert str(caught.value) == (
        "Wrapper: claim_nodes is a wrapper, and there is nothing to wrap; "
        "write @hookimpl, plugins are asked one by one"
    )


def test_a_plugin_cant_change_the_options_of_the_registry(install):
    source = f"{GOOD}    def __init__(self, ops):\n        ops.append('b')\n"
    install("a", source)
    registry = Registry((PluginEntry("a", options={"ops": ["a"]}),))
    selection.select(registry)
    assert registry.entries[0].options == {"ops": ["a"]}


@pytest.mark.parametrize(("api", "newer"), [(2, "etdev"), (0, "etdev-a")])
def test_a_plugin_for_other_hooks_is_left_out_alone(install, api, newer):
    install("a", f"{GOOD}\n    etdev_api = {api}\n    @hookimpl\n    def new_hook(self): ...\n")
    install("b", f"{GOOD}\n    etdev_api = {hookspecs.API}\n")
    text = (
        f"a (etdev-a 1.0): was written for version {api} of the hooks, and this etdev has 1; "
        f"install a newer {newer}"
    )
    registry = Registry(unlisted="first")
    with pytest.warns(EtdevWarning) as caught:
        assert names(registry) == ["b"]
    assert [str(item.message) for item in caught] == [f"left out {text}"]
    # Asked for, it is an error; the list of plugins has it.
    assert refusal(registry, ["b", "a"]) == text
    assert refusal(listed("a", "b")) == text
    (broken, ready) = found(registry)
    assert (broken.name, broken.plugin, ready.name) == ("a", None, "b")
    assert broken.problem == text.partition(": ")[2]


def test_an_object_for_other_hooks_has_no_distribution_to_install():
    class Old(Backend):
        etdev_api = 0

    assert refusal(Registry(), [Old()]) == (
        "fake: was written for version 0 of the hooks, and this etdev has 1; "
        "write it for version 1, see etdev/hookspecs.py"
    )


@pytest.mark.parametrize(("api", "runs"), [("(1, 2)", True), ("(0, 1)", True), ("(2, 3)", False)])
def test_a_plugin_may_be_for_several_versions_of_the_hooks(install, api, runs):
    install("a", f"{GOOD}\n    etdev_api = {api}\n")
    if runs:
        assert names(listed("a")) == ["a"]
    else:
        assert refusal(listed("a")) == (
            "a (etdev-a 1.0): was written for version 2 to 3 of the hooks, and this etdev has 1; "
            "install a newer etdev"
        )


def test_a_deprecated_argument_of_a_hook_warns_with_the_plugins_name(install, monkeypatch):
    """No hook has one now: the page of hooks marks it so, and pluggy notices."""

    class Page:
        @hookspecs.pluggy.HookspecMarker("etdev")(
            warn_on_impl_args={"partitions": DeprecationWarning("it goes with hooks 2; use owners")}
        )
        def claim_nodes(self, program, taken, partitions, config, owners):
            """Stands in for a page on which an argument is replaced."""

    monkeypatch.setattr(plugin.hookspecs, "claim_nodes", Page().claim_nodes)
    install("old", GOOD.replace("program)", "program, partitions)"))
    install("new", GOOD)
    with pytest.warns(EtdevWarning) as caught:
        assert names(listed("old", "new")) == ["old", "new"]
    texts = [str(each.message) for each in caught]
    assert texts == ["old (etdev-old 1.0): it goes with hooks 2; use owners"]


MANIFEST = """
etdev_api = [1]
backends = ["NpuBackend"]
devices = ["npu"]
hooks = ["claim_nodes", "probe"]
runtime = "libnpu"
requires = ["vendorcc>=3", "etdev-npu>=1000"]
"""


@pytest.fixture
def with_manifest(install, tmp_path):
    """Installs a plugin in a package that has a manifest, and can't be imported."""

    def put(text):
        install("npu", "", target=".plugin:Plugin")
        (tmp_path / "etdev_npu.py").unlink()
        (tmp_path / "etdev_npu").mkdir()
        (tmp_path / "etdev_npu" / "__init__.py").write_text("import vendorcc_of_nobody\n")
        (tmp_path / "etdev_npu" / "etdev-plugin.toml").write_text(text)
        importlib.invalidate_caches()

    return put


def test_a_plugin_that_can_not_be_imported_is_explained_by_its_manifest(with_manifest):
    with_manifest(MANIFEST)
    (broken,) = found(Registry(unlisted="first"))
    assert (broken.name, broken.distribution, broken.plugin) == ("npu", "etdev-npu", None)
    assert broken.manifest.backends == ("NpuBackend",)
    assert broken.problem == (
        "import failed with ModuleNotFoundError: No module named 'vendorcc_of_nobody'; "
        "it needs vendorcc>=3, which is not installed; "
        "it needs etdev-npu>=1000, and 1.0 is installed; "
        "reinstall or uninstall it"
    )


def test_a_plugin_for_other_hooks_is_not_even_imported(with_manifest):
    with_manifest(MANIFEST.replace("[1]", "[2, 3]"))
    assert refusal(listed("npu")) == (
        "npu (etdev-npu 1.0): was written for version 2 to 3 of the hooks, and this etdev has 1; "
        "install a newer etdev"
    )
    assert "etdev_npu" not in sys.modules


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ('runtime = "libnpu"', "runtme = 1", ": runtme is an unknown key; did you mean"),
        (
            '"vendorcc>=3"',
            '"vendorcc=>3"',
            ": requires[0] is 'vendorcc=>3'; write it as pip",
        ),
        ("etdev_api = [1]", "etdev_api = 1", ": etdev_api is 1; it must be a list"),
        ("etdev_api = [1]", "etdev_api = ", ": is not valid TOML: "),
    ],
)
def test_a_manifest_that_makes_no_sense_is_named(with_manifest, before, after, what):
    with_manifest(MANIFEST.replace(before, after))
    (broken,) = found(Registry(unlisted="first"))
    assert broken.problem
    assert f"etdev-plugin.toml{what}" in refusal(listed("npu"))


@pytest.mark.parametrize("api", ["'1'", "None", "True", "1.0", "(1, 2, 3)", "()", "(True,)"])
def test_a_version_of_the_hooks_is_a_number(install, api):
    install("a", f"{GOOD}\n    etdev_api = {api}\n")
    assert (
        refusal(listed("a")) == f"a (etdev-a 1.0): etdev_api is {eval(api)!r}; write etdev_api = 1"
    )


def test_an_idle_plugin_is_asked_and_listed_only_if_it_is_named(install):
    install("busy")
    install("idle", GOOD.replace("class Plugin:", "class Plugin:\n    idle = True\n", 1))
    assert names(Registry(unlisted="first")) == ["busy"]
    assert [finding.name for finding in found(Registry(unlisted="first"))] == ["busy"]
    assert names(Registry(unlisted="first"), ["idle"]) == ["idle"]


@pytest.mark.parametrize(
    ("origin", "hint"),
    [
        ({"url": "file://{}", "dir_info": {"editable": True}}, "pip install '{}/plugins/etdev-x'"),
        ({"url": "file://{}", "dir_info": {}}, "pip install '{}/plugins/etdev-x'"),
        ({"url": "file://{}/none", "dir_info": {}}, "install etdev-x from the repository of etdev"),
        ({"url": "file://{}/e.whl", "archive_info": {}},
         "install etdev-x from the repository of etdev"),
        ({"url": "https://a.org/e.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
         'pip install "git+https://a.org/e.git#subdirectory=plugins/etdev-x"'),
        (None, "install etdev-x from the repository of etdev"),
    ],
)  # fmt: skip
def test_a_hint_installs_from_where_etdev_came_from(origin, hint, tmp_path, monkeypatch):
    checkout, info = tmp_path / "a checkout", tmp_path / "site" / "etdev-0.1.0.dist-info"
    (checkout / "plugins" / "etdev-x").mkdir(parents=True)
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: etdev\nVersion: 0.1.0\n")
    if origin:
        url = origin["url"].format(checkout.as_posix().replace(" ", "%20"))
        (info / "direct_url.json").write_text(json.dumps({**origin, "url": url}))
    monkeypatch.setattr("sys.path", [str(info.parent)])
    assert install_hint("etdev-x") == hint.format(checkout)
    named = "etdev-x[y] @ " if "git+" in hint else ""
    told = install_hint("etdev-x", "y")
    assert told == hint.replace("git+", f"{named}git+").replace(
        *("etdev-x from", "etdev-x[y] from") if " from " in hint else ("etdev-x'", "etdev-x[y]'")
    ).format(checkout)
