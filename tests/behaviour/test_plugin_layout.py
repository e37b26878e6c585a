"""Plugins for backends side by side: the same files and shapes, and of etdev only its face."""

import ast
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import etdev.graph
import etdev.quirks
from etdev import hookspecs
from etdev.registry import Registry
from etdev.registry.discovery import load_plugin
from etdev.registry.extensions import Candidate
from etdev.registry.manifest import manifest_in
from etdev.registry.registry import tomllib

PLUGINS = Path(__file__).parents[2] / "plugins"
EVERY = {"__init__", "plugin", "support", "machine", "payload"}
MORE = {
    "etdev_cpu": {
        *("attention", "compiler", "constraints", "deconvolutions", "images", "layers"),
        *(
            "matching",
            "norms",
            "notes",
            "options",
            "own_dequantisers",
            "own_weights",
            "quantisers",
            "quirks",
            "reasons",
            "resizing",
        ),
        *("soundness", "sources", "structure", "template", "weight_only"),
    },
    "etdev_cuda": {"fallbacks", "kernels", "options", "soundness", "vendor"},
    "etdev_openvino": {
        *("attention", "blob", "compiler", "edges", "infinities", "own_weights", "soundness"),
    },
    "etdev_trt": {"compiler", "engine", "runner", "vendor"},
}
# They also return caveats of what they take.
CAVEATS = ("etdev_cpu", "etdev_openvino")
FACE = (
    *("etdev", "etdev.errors", "etdev.graph", "etdev.quirks", "etdev.schema.compiler_cache"),
    # For a runner, see plugins/README.md.
    *("etdev.pte.artifact", "etdev.runtime.child", "etdev.runtime.runners"),
)
# Without the distributions that have a command or a view.
PACKAGES = {file.parent.name: file.parent for file in PLUGINS.glob("etdev-*/etdev_*/plugin.py")}
each_package = pytest.mark.parametrize("name", sorted(MORE))


def trees(name):
    return {file.stem: ast.parse(file.read_text("utf-8")) for file in PACKAGES[name].glob("*.py")}


def test_every_plugin_is_here():
    assert PACKAGES.keys() == MORE.keys()


@each_package
def test_the_plugins_share_their_file_names(name):
    assert trees(name).keys() == EVERY | MORE[name]
    others = {path.name for path in PACKAGES[name].iterdir() if path.suffix != ".py"}
    # `testing` has the fakes of a vendor, for tests of whoever composes with it.
    assert others - {"__pycache__", "testing"} == {"py.typed", "etdev-plugin.toml"}


@each_package
def test_a_manifest_says_what_the_plugin_has(name):
    """The manifest is read without importing the plugin, so nothing else holds the two together."""
    code = (PACKAGES[name] / "payload.py").read_text("utf-8")
    project = tomllib.loads((PACKAGES[name].parent / "pyproject.toml").read_text("utf-8"))
    (entry,) = project["project"]["entry-points"]["etdev"].items()
    candidate = Candidate(EntryPoint(*entry, "etdev"), f"etdev-{entry[0]}")
    manifest, plugin = manifest_in(candidate.entry.module), load_plugin(candidate, Registry())
    assert manifest.hooks == plugin.hooks
    assert manifest.etdev_api == (plugin.implementation.etdev_api,)
    assert f'BACKEND_ID = "{manifest.backends[0]}"' in code
    source = (PACKAGES[name] / "plugin.py").read_text("utf-8")
    # A claim without device types is for the CPU.
    assert (f'device_types=("{manifest.devices[0]}",)' in source) == (manifest.devices != ("cpu",))


def host_imports(tree):
    """Modules of etdev that a file imports, and the names it imports from each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what they import"
            modules = {node.module: [alias.name for alias in node.names]}
        elif isinstance(node, ast.Import):
            modules = {alias.name: [] for alias in node.names}
        else:
            continue
        yield from ((m, names) for m, names in modules.items() if m.partition(".")[0] == "etdev")


@each_package
def test_plugins_import_of_etdev_only_its_face(name):
    imports = [(file, *found) for file, tree in trees(name).items() for found in host_imports(tree)]
    assert [found for found in imports if found[1] not in FACE] == []
    declared = {
        module.__name__: set(module.__all__) for module in (etdev, etdev.graph, etdev.quirks)
    }
    hidden = [
        (file, module, names)
        for file, module, names in imports
        if not declared.get(module, set(names)).issuperset(names)
    ]
    assert hidden == []


def functions(tree, name):
    """Signatures of the functions and methods of a name, but for `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            arguments = [ast.unparse(a) for a in node.args.args if a.arg != "self"]
            yield arguments, ast.unparse(node.returns)


@pytest.mark.parametrize(
    ("file", "function", "arguments", "returns"),
    [
        ("support", "keep_whole", ["program: ExportedProgram"], "KeepWhole"),
        (
            "support",
            "match",
            ["program: ExportedProgram", "taken: Mapping[str, str]"],
            "tuple[list[Group], list[Refusal]]",
        ),
        ("payload", "device_of", ["payload: bytes", "arguments: int | None"], "Device | None"),
    ],
)
@each_package
def test_the_plugins_share_their_shapes(name, file, function, arguments, returns):
    if function == "match" and name in CAVEATS:
        returns = "tuple[list[Group], list[Refusal], list[Refusal]]"
    assert list(functions(trees(name)[file], function)) == [(arguments, returns)]


@each_package
def test_a_plugin_says_which_hooks_it_was_written_for(name):
    (plugin,) = [node for node in trees(name)["plugin"].body if isinstance(node, ast.ClassDef)]
    said = [ast.unparse(node) for node in plugin.body if isinstance(node, ast.AnnAssign)]
    assert f"etdev_api: ClassVar[int] = {hookspecs.API}" in said
