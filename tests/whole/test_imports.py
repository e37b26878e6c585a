"""What is imported when: torch late, upwards never, and printing only where it belongs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import etdev

FOLDER = Path(etdev.__file__).parent
# From the ground up. What stands on one storey may be imported by those above it, and by its own
# folder; neighbours on a storey don't know each other.
STOREYS = (
    ("errors",),
    ("files",),
    ("schema",),
    ("upstream",),
    ("hookspecs",),
    ("graph",),
    ("registry",),
    ("edge", "planner", "delegate", "pte"),
    ("quirks", "runtime"),
    ("lowering",),
    ("lowerer",),
    ("partitioner",),
    ("testing", "scaffold"),
    ("cli",),
    # A plugin, which the host finds as it finds others; it sees of the host what they see.
    ("portable",),
)
STOREY = {place: storey for storey, places in enumerate(STOREYS) for place in places}


def module(file):
    """A file as its dotted name below etdev, a package as its folder: `schema`, `schema.plan`."""
    path = file.relative_to(FOLDER).with_suffix("")
    return ".".join(path.parts[:-1] if path.name == "__init__" else path.parts)


TREES = {module(file): ast.parse(file.read_text("utf-8")) for file in FOLDER.rglob("*.py")}


@pytest.mark.parametrize(
    "code",
    [
        "import etdev",
        "from etdev import hookimpl, Device, Claim, Plan, Registry",
        "from etdev import Group, Refusal, KeepWhole, Assumed, Probe, Partition, Constant, Tensor",
        "import etdev; dir(etdev), etdev.__version__",
        *[f"import etdev.{name}" for name in TREES if name.startswith("schema")],
        "import etdev.registry",
        "from etdev.cli.main import main",
        "from etdev.cli.main import main; main(['--help'])",
        "from etdev.cli.main import main; main(['--version'])",
        "from etdev.cli.main import main; main(['plan', '--help'])",
        "from etdev.cli.main import main; main(['plugins'])",
        "from etdev.cli.main import main; main(['plugins', '--json'])",
        "from etdev.cli.main import main; main(['new', 'plugin', 'npu'])",
        "from etdev.cli.main import main; main(['new', 'backend', 'npu'])",
    ],
)
def test_torch_is_not_imported_by(code, tmp_path):
    program = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit as done:\n    assert not done.code\n"
        "print([name for name in ('torch', 'executorch') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "words", ["inspect net.pte", "explain net.pte", "explain plan.json", "diff net.pte plan.json",
              "diff net.pte other.pte", "check net.pte --target cuda:3", "inspect gone.pte",
              "run gone.pte", "lower net.py -o net.pte", "lower gone.py:model -o net.pte"],
)  # fmt: skip
def test_a_command_that_needs_no_torch_does_not_import_it(words, mlp_lowered, tmp_path):
    mlp_lowered.save(tmp_path / "net.pte", with_ledger=True)
    mlp_lowered.save(tmp_path / "other.pte")
    (tmp_path / "plan.json").write_text(mlp_lowered.plan.to_json())
    (tmp_path / "net.py").write_text("import torch\n\n\ndef model():\n    return None\n")
    code = (
        "import sys\nfrom etdev.cli.main import main\ntry: main(sys.argv[1:])\n"
        "except SystemExit as done: print(done.code, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    failing = any(word in words for word in ("gone", "other", "net.py"))
    assert done.stdout.splitlines()[-1] == f"{1 if failing else 0} False", done.stderr
    assert "Traceback" not in done.stderr


def test_partitioner_is_the_function_whoever_imports_its_file():
    code = "import etdev, etdev.partitioner; print(etdev.partitioner.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "partitioner\n", done.stderr


def at_import_time(body):
    """Statements that run when a module is imported, those under TYPE_CHECKING left out."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from at_import_time(statement.orelse)
            continue
        yield statement
        for part in ("body", "orelse", "finalbody"):
            yield from at_import_time(getattr(statement, part, []))
        for handler in getattr(statement, "handlers", []):
            yield from at_import_time(handler.body)


def targets(statements):
    """Dotted names, below etdev, of the modules that some statements import."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "relative imports hide what they import"
            inside = [f"{statement.module}.{alias.name}" for alias in statement.names]
            names = [name if below(name) in TREES else statement.module for name in inside]
        else:
            continue
        yield from (below(name) for name in names if name.partition(".")[0] == "etdev")


def below(name):
    return name.removeprefix("etdev").removeprefix(".")


def place(name):
    return name.partition(".")[0]


# Those inside functions and under TYPE_CHECKING too.
ARROWS = sorted({(n, other) for n, tree in TREES.items() for other in targets(ast.walk(tree))})


def test_no_file_imports_what_another_distribution_of_etdev_has():
    """But for the package itself, which has public names for what they have."""
    importers = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "etdev_" in ast.unparse(node)
    }
    assert importers == {""}


def test_the_storeys_name_every_place():
    assert STOREY.keys() == {place(name) for name in TREES if name}


def test_arrows_run_down():
    # The package itself names the public homes of its names, which are on any storey.
    arrows = [(name, other) for name, other in ARROWS if name and place(name) != place(other)]
    host = [(name, other) for name, other in arrows if place(name) != "portable"]
    up = [(n, o) for n, o in host if not o or STOREY[place(n)] <= STOREY[place(o)]]
    assert up == []


def test_the_built_in_plugin_imports_what_plugins_may_import():
    face = {"", "errors", "graph", "quirks", "upstream"}
    seen = {other for name, other in ARROWS if place(name) == "portable"}
    assert {place(other) for other in seen} - {"portable"} <= face
    assert {other for other in seen if place(other) in ("errors", "graph", "quirks")} <= face


def test_imports_between_files_point_one_way():
    left = {name: set(targets(at_import_time(tree.body))) - {name} for name, tree in TREES.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}


def test_only_the_command_line_prints():
    talkers = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in ("print", "Console"))
        or (isinstance(node, ast.alias) and node.name == "Console")
    }
    assert {place(name) for name in talkers} == {"cli"}
