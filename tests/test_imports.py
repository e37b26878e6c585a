"""What is imported when: torch late, upwards never, and printing only where it belongs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import etdev

FOLDER = Path(etdev.__file__).parent
TREES = {file.stem: ast.parse(file.read_text(encoding="utf-8")) for file in FOLDER.glob("*.py")}


@pytest.mark.parametrize(
    "code",
    [
        "import etdev",
        "from etdev import hookimpl, Device, Claim, Plan, Registry",
        "from etdev import Group, Refusal, KeepWhole, Assumed, Probe, Partition, Constant, Tensor",
        "import etdev; dir(etdev), etdev.__version__",
        "from etdev.cli.main import main",
        "from etdev.cli.main import main; main(['--help'])",
        "from etdev.cli.main import main; main(['--version'])",
        "from etdev.cli.main import main; main(['plan', '--help'])",
        "from etdev.cli.main import main; main(['plugins'])",
        "from etdev.cli.main import main; main(['plugins', '--json'])",
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


def imported(tree):
    """Names of the etdev modules that a module imports while it is imported itself."""
    for statement in at_import_time(tree.body):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "relative imports hide what they import"
            inside = [f"{statement.module}.{alias.name}" for alias in statement.names]
            names = inside if statement.module == "etdev" else [statement.module]
        else:
            continue
        for name in names:
            package, _, module = name.partition(".")
            if package == "etdev":
                yield module if module in TREES else "__init__"


def test_imports_between_modules_point_one_way():
    left = {name: set(imported(tree)) for name, tree in TREES.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}


def test_nothing_imports_the_command_line():
    assert [name for name, tree in TREES.items() if "cli" in imported(tree)] == []


def test_only_the_command_line_and_progress_print():
    talkers = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in ("print", "Console"))
        or (isinstance(node, ast.alias) and node.name == "Console")
    }
    assert talkers <= {"cli", "progress"}
