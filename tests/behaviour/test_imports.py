"""What is imported when: torch late, upwards never, and printing only where it belongs."""

import ast
import subprocess
import sys
from functools import cache
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
    ("verify",),
    ("pipeline",),
    ("completion", "lowered"),
    ("lowerer", "locking"),
    ("composed_partitioner",),
    ("testing", "scaffold", "report"),
    ("cli",),
    ("__main__",),
    ("app",),
    # A plugin, which the host finds as it finds others; it sees of the host what they see.
    ("portable",),
)
STOREY = {place: storey for storey, places in enumerate(STOREYS) for place in places}


def module(file):
    """A file as its dotted name below etdev, a package as its folder: `schema`, `schema.plan`."""
    path = file.relative_to(FOLDER).with_suffix("")
    return ".".join(path.parts[:-1] if path.name == "__init__" else path.parts)


FILES = {module(file): file for file in FOLDER.rglob("*.py")}


@cache
def trees():
    """The syntax tree of each file."""
    return {name: ast.parse(file.read_text("utf-8")) for name, file in FILES.items()}


CODE = [
    "import etdev",
    "from etdev import hookimpl, Device, Claim, Plan, Registry",
    "from etdev import Group, Refusal, KeepWhole, Assumed, Probe, Partition, Constant, Tensor",
    "dir(etdev), etdev.__version__",
    *[f"import etdev.{name}" for name in FILES if name.startswith("schema")],
    "import etdev.registry",
    *[f"import etdev_{name}.plugin" for name in ("cpu", "cuda", "openvino", "trt")],
    "from etdev.cli.main import main",
    "main(['--help'])",
    "main(['--version'])",
    "main(['plan', '--help'])",
    "main(['plugins'])",
    "main(['plugins', '--json'])",
    "main(['new', 'plugin', 'npu'])",
    "main(['new', 'backend', 'own'])",
]
COMMANDS = {
    "inspect net.pte": 0,
    "explain net.pte": 0,
    "explain plan.json": 0,
    "diff net.pte plan.json": 0,
    "diff net.pte other.pte": 1,
    "check net.pte --device cuda:3": 0,
    "inspect gone.pte": 1,
    "run gone.pte": 1,
    "lower net.py -o net.pte": 1,
    "lower gone.py:model -o net.pte": 1,
}
# All in one process, since what is imported stays there: the first that imports torch is seen.
EACH = """
import sys
for code in sys.argv[1:]:
    status = 0
    try:
        exec(code)
    except SystemExit as done:
        status = done.code or 0
    sys.stdout.flush()
    torch = any(name in sys.modules for name in ("torch", "executorch"))
    print(code, status, torch, sep="\t", file=sys.stderr)
"""


def each(codes, folder):
    """Run codes in one process; the status of each, and whether torch is there after it."""
    done = subprocess.run(
        [sys.executable, "-c", EACH, *codes], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    said = [line.split("\t") for line in done.stderr.splitlines() if "\t" in line]
    return {code: (int(status), torch == "True") for code, status, torch in said}


def test_torch_is_not_imported_by_the_package_plugins_and_small_commands(tmp_path):
    assert each(CODE, tmp_path) == dict.fromkeys(CODE, (0, False))


def test_a_command_that_needs_no_torch_does_not_import_it(mlp_lowered, tmp_path):
    mlp_lowered.save(tmp_path / "net.pte", with_ledger=True)
    mlp_lowered.save(tmp_path / "other.pte")
    (tmp_path / "plan.json").write_text(mlp_lowered.plan.to_json())
    (tmp_path / "net.py").write_text("import torch\n\n\ndef model():\n    return None\n")
    codes = {f"main({words.split()})": (status, False) for words, status in COMMANDS.items()}
    start = "from etdev.cli.main import main"
    assert each([start, *codes], tmp_path) == {start: (0, False), **codes}


def test_a_run_does_not_import_the_compilers_of_torch_and_executorch(mlp_pte, tmp_path):
    codes = [
        "from etdev.cli.main import main",
        f"main(['run', {str(mlp_pte)!r}])",
        "assert not {'executorch.exir', 'torch._dynamo'} & {*sys.modules}",
    ]
    assert each(codes, tmp_path)[codes[2]] == (0, True)


@pytest.mark.suite
def test_an_import_in_python_logs_nothing():
    code = "import logging, etdev; etdev.Lowerer; print(logging.getLogger('torchao').disabled)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


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
            names = [name if below(name) in FILES else statement.module for name in inside]
        else:
            continue
        yield from (below(name) for name in names if name.partition(".")[0] == "etdev")


def below(name):
    return name.removeprefix("etdev").removeprefix(".")


def place(name):
    return name.partition(".")[0]


@cache
def arrows():
    """Which file imports which, also inside functions and under TYPE_CHECKING."""
    found = trees().items()
    return sorted({(name, other) for name, tree in found for other in targets(ast.walk(tree))})


def test_no_file_imports_what_another_distribution_of_etdev_has():
    """But for the package itself, which has public names for what they have."""
    importers = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "etdev_" in ast.unparse(node)
    }
    assert importers == {""}


def test_the_storeys_name_every_place():
    assert STOREY.keys() == {place(name) for name in FILES if name}


def test_arrows_run_down():
    # The package itself names the public homes of its names, which are on any storey.
    far = [(name, other) for name, other in arrows() if name and place(name) != place(other)]
    host = [(name, other) for name, other in far if place(name) != "portable"]
    up = [(n, o) for n, o in host if not o or STOREY[place(n)] <= STOREY[place(o)]]
    assert up == []


def test_the_built_in_plugin_imports_what_plugins_may_import():
    face = {"", "errors", "graph", "quirks", "upstream"}
    seen = {other for name, other in arrows() if place(name) == "portable"}
    assert {place(other) for other in seen} - {"portable"} <= face
    assert {other for other in seen if place(other) in ("errors", "graph", "quirks")} <= face


def test_imports_between_files_point_one_way():
    left = {
        name: set(targets(at_import_time(tree.body))) - {name} for name, tree in trees().items()
    }
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}


def test_only_the_command_line_prints():
    talkers = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in ("print", "Console"))
        or (isinstance(node, ast.alias) and node.name == "Console")
    }
    assert {place(name) for name in talkers} == {"cli"}
