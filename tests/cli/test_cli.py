"""The command line: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from models import nets

import etdev
from etdev import Lowerer, Plan
from etdev.cli.main import main
from etdev.pte import read

TESTS = Path(__file__).parents[1]
MLP = f"{TESTS / 'models/nets.py'}:mlp"
FORMS = "write file.pt2, package.module:function or file.py:function"
COMMANDS = ("plugins", "plan", "lower", "run", "inspect", "check")

# A SOURCE for each mistake; the line of the mistake is part of the message.
BROKEN = """\
import sys

import torch

from models import nets


def raises():
    raise ValueError("no weights")


def raises_inside_torch():
    return torch.nn.Linear(2, -3)


def exits():
    sys.exit(3)


def number():
    return 42


def nothing():
    return None


def several():
    return [nets.mlp()]


def bare():
    return nets.mlp()[0]


def empty():
    return {}


def badly_shaped():
    return torch.nn.Linear(2, 2), (torch.ones(1, 3),)


def program():
    return torch.export.export(*nets.mlp())


def second_is_nan():
    return Second(), (torch.ones(3),)


class Second(torch.nn.Module):
    def forward(self, x):
        return x + 1, x * float("nan")


limit = 3
"""


class Two(torch.nn.Module):
    """Two outputs."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Files that tests read and never write."""
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def lowered(folder) -> tuple[Path, Result]:
    """The MLP as a .pte, and what `etdev lower` said."""
    path = folder / "mlp.pte"
    return path, etdev_(f"lower {MLP} --plugin cpu -o", path)


@pytest.fixture(scope="module")
def pte(lowered) -> Path:
    return lowered[0]


@pytest.fixture(scope="module")
def two(folder) -> Path:
    return Lowerer([]).lower(Two(), (torch.ones(3),)).save(folder / "two.pte")


@pytest.fixture(scope="module")
def pt2(folder) -> Path:
    path = folder / "mlp.pt2"
    torch.export.save(torch.export.export(*nets.mlp()), path)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    """A working directory for each test, so that messages hold short paths."""
    monkeypatch.chdir(tmp_path)
    # A file.py:function puts its folder there.
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def broken(here) -> str:
    (here / "broken.py").write_text(BROKEN)
    return "broken.py"


@pytest.fixture
def sealed(here) -> Iterator[Path]:
    """A folder in which no file can be made; root may write to all but the kernel's own."""
    if os.geteuid() == 0:
        if not Path("/proc/self").is_dir():
            pytest.skip("root can write to every folder here")
        yield Path("/proc/self")
        return
    (here / "sealed").mkdir(mode=0o500)
    yield Path("sealed")
    (here / "sealed").chmod(0o700)


def etdev_(words: str, *arguments: object) -> Result:
    """Run etdev in this process with the words of a line and further arguments."""
    given = [*words.split(), *map(str, arguments)]
    return CliRunner().invoke(main, given, prog_name="etdev")


def succeeds(words: str, *arguments: object) -> str:
    """What a command prints that ends well."""
    done = etdev_(words, *arguments)
    assert done.exit_code == 0, done.stderr
    assert "error" not in done.stderr
    return done.stdout


def fails(words: str, *arguments: object) -> str:
    """The one line that a command fails with, which leaves the folder as it was."""
    before = _files()
    done = etdev_(words, *arguments)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    *progress, line = done.stderr.splitlines()
    assert all(text.endswith("…") for text in progress)
    assert line.startswith("error: ")
    assert _files() == before
    return line.removeprefix("error: ")


def process(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run etdev in a process of its own, in the working directory."""
    start = [sys.executable, "-c", "from etdev.cli.main import main; main()"]
    given = {"capture_output": True, "text": True, "timeout": 300, **options}
    return subprocess.run([*start, *map(str, arguments)], check=False, **given)


# Help


def test_the_help_teaches_every_command():
    text = succeeds("--help")
    assert set(main.commands) == set(COMMANDS)
    for name in COMMANDS:
        assert f"\n  etdev {name}" in text
        assert f"\n  {name} " in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_explains_each_option(name):
    text = succeeds(f"{name} -h")
    assert text.startswith(f"Usage: etdev {name} ")
    for option in main.commands[name].params:
        if option.param_type_name == "option":
            assert option.help, option.name
            assert option.opts[-1] in text


@pytest.mark.parametrize("name", ["plan", "lower"])
def test_the_help_says_what_a_source_is(name):
    text = " ".join(succeeds(f"{name} --help").split())
    assert "SOURCE is file.pt2, package.module:function or file.py:function." in text


def test_the_version_is_that_of_the_package():
    assert succeeds("--version") == f"etdev {etdev.__version__}\n"


# plan


def test_plan_shows_owners_partitions_and_what_is_left():
    text = succeeds(f"plan {MLP} --plugin cpu")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert rows[0] == "method forward"
    assert "cpu 2 3" in rows
    assert "portable - 1" in rows
    assert any(row.startswith("cpu_0 XnnpackBackend cpu default 2 1 (64 B) ") for row in rows)
    assert "aten.native_layer_norm.default 1 cpu: XNNPACK has no native_layer_norm.default" in rows


def test_plan_as_json_is_the_plan():
    text = succeeds(f"plan {MLP} --plugin cpu --json")
    assert json.loads(text)["methods"][0]["method"] == "forward"
    assert Plan.from_json(text) == Lowerer(["cpu"]).plan(*nets.mlp())


def test_why_shows_what_every_plugin_said_about_a_node():
    node = "aten_native_layer_norm_default"
    head, row = succeeds(f"plan {MLP} --plugin cpu --why {node}").splitlines()
    assert head.split() == ["method", "node", "op", "plugin", "verdict", "reason"]
    assert row.split()[:4] == ["forward", node, "aten.native_layer_norm.default", "cpu"]
    assert row.rstrip().endswith("XNNPACK has no native_layer_norm.default")


def test_why_as_json_is_the_entry_of_the_ledger():
    node = "aten_native_layer_norm_default"
    (row,) = json.loads(succeeds(f"plan {MLP} --plugin cpu --json --why {node}"))
    text = "XNNPACK has no native_layer_norm.default"
    assert row == {
        "method": "forward",
        "node": node,
        "op": "aten.native_layer_norm.default",
        "owner": None,
        "partition": None,
        "verdicts": [{"plugin": "cpu", "code": "op", "text": text}],
        "module": "2",
        "pin": None,
    }


def test_pins_show_in_the_plan_and_in_why():
    kept, missed = "module=1:plugin=portable", "op=aten.native_layer_norm.*:plugin=cpu"
    options = f"plan {MLP} --plugin cpu --pin {kept} --pin {missed}"
    rows = [" ".join(line.split()) for line in succeeds(options).splitlines()]
    assert f"{kept} 1 -" in rows
    assert f"{missed} 1 1" in rows
    text = succeeds(f"{options} --why aten_relu_default")
    assert text.splitlines()[-1] == f"forward/aten_relu_default is pinned by {kept}"
    node = "aten_native_layer_norm_default"
    text = succeeds(f"{options} --why {node}")
    expected = f"forward/{node} is pinned by {missed}, but cpu does not take it"
    assert text.splitlines()[-1] == expected


def test_a_pin_that_makes_no_sense_is_wrong_usage():
    result = etdev_(f"plan {MLP} --pin op=aten.add.*")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        "Error: Invalid value for --pin: names no plugin; "
        'write module = "encoder.layer.0" with plugin = "cpu"'
    )


def test_why_of_an_unknown_node_names_close_ones():
    assert fails(f"plan {MLP} --plugin cpu --why aten_relu_defualt") == (
        "plan: there is no node 'aten_relu_defualt'; close are "
        "aten_relu_default, aten_linear_default, aten_linear_default_1"
    )
    assert fails(f"plan {MLP} --plugin cpu --why zzz") == "plan: there is no node 'zzz'"


def test_a_pinned_device_shows_in_the_plan():
    pinned = succeeds(f"plan {MLP} --plugin cpu --device cpu.forward=cpu --json")
    assert {part.device_source for part in Plan.from_json(pinned).partitions} == {"pinned"}


# lower


def test_lower_writes_the_file_and_says_what_is_in_it(lowered):
    path, done = lowered
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"{path}: method forward, 2 delegates, nodes: cpu 3, portable 1",
        f"{path}: {path.stat().st_size / 1024:.1f} KiB",
    ]
    (method,) = read.read(path).methods
    assert [delegate.backend_id for delegate in method.delegates] == ["XnnpackBackend"] * 2


def test_lower_says_stages_and_their_times_on_stderr(lowered):
    words = [line.split()[0] for line in lowered[1].stderr.splitlines()]
    stages = ["export", "edge", "plan", "compile", "emit", "write", "audit"]
    assert words == ["load", "model", *stages, "stage", *stages, "total"]


def test_lower_leaves_one_file(lowered):
    names = [path.name for path in lowered[0].parent.iterdir() if path.name.startswith("mlp")]
    assert [name for name in names if "pt2" not in name] == ["mlp.pte"]


# Sources


def test_a_function_is_found_in_a_module_of_the_path():
    assert '"method": "forward"' in succeeds("plan models.nets:mlp --plugin cpu --json")


def test_a_function_is_found_in_a_module_of_the_working_directory(here):
    (here / "net_of_mine.py").write_text("from models import mlp\n")
    assert '"method": "forward"' in succeeds("plan net_of_mine:mlp --plugin cpu --json")


def test_a_function_in_a_file_imports_its_neighbours(here):
    (here / "nets").mkdir()
    (here / "nets" / "sizes_of_mine.py").write_text("WIDTH = 4\n")
    (here / "nets" / "main_of_mine.py").write_text(
        "import torch\nfrom sizes_of_mine import WIDTH\n\n"
        "def net():\n    return torch.nn.ReLU(), torch.ones(WIDTH)\n"
    )
    plan = Plan.from_json(succeeds("plan nets/main_of_mine.py:net --plugin cpu --json"))
    assert plan["forward"].partitions[0].inputs[0].shape == (4,)


def test_a_function_may_return_a_program_or_methods(broken, here):
    assert '"method": "forward"' in succeeds(f"plan {broken}:program --plugin cpu --json")
    (here / "several_of_mine.py").write_text(
        "from models import nets\n\ndef net():\n    return {'one': nets.mlp(), 'two': nets.mlp()}\n"
    )
    plan = Plan.from_json(succeeds("plan several_of_mine.py:net --plugin cpu --json"))
    assert [method.method for method in plan.methods] == ["one", "two"]


def test_a_pt2_file_is_a_source(pt2, pte):
    assert '"method": "forward"' in succeeds("plan --plugin cpu --json", pt2)
    assert "max error" in succeeds("run", pte, "--check", pt2)


# run


def test_run_with_check_shows_the_error_against_eager(pte):
    output, latency = succeeds("run", pte, "--check", MLP).splitlines()
    assert output.startswith("output 0: float32 (2, 4), max error ")
    assert float(output.split("max error ")[1].split()[0]) < 1e-5
    assert latency.startswith("latency: ")
    assert " ms median of 10, fastest " in latency


def test_run_within_the_tolerance_succeeds(pte):
    assert "max error" in succeeds("run", pte, "--check", MLP, "--tolerance", "1e-4")


def test_run_above_the_tolerance_fails_and_still_shows_the_outputs(pte):
    done = etdev_("run", pte, "--check", MLP, "--tolerance", "1e-30")
    assert done.exit_code == 1
    assert done.stdout.startswith("output 0: float32 (2, 4), max error ")
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: check: max error ")
    assert error.endswith(" of output 0 is above 1e-30; find the delegate with --bisect")


def test_nan_is_above_every_tolerance_whatever_the_other_outputs(two, broken):
    done = etdev_("run", two, "--check", f"{broken}:second_is_nan", "--tolerance", "1e9")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == (
        "error: check: max error nan of output 1 is above 1e+09; find the delegate with --bisect"
    )


def test_run_without_inputs_makes_some_up(pte):
    output, latency = succeeds("run --repeat 3", pte).splitlines()
    assert output == "output 0: float32 (2, 4)"
    assert " ms median of 3, fastest " in latency


def test_run_takes_inputs_from_a_file(two):
    torch.save([torch.full((3,), 5.0)], "inputs.pt")
    text = succeeds("run", two, "--inputs", "inputs.pt", "--check", _two_source())
    assert "max error 0 (largest value 6)" in text
    assert "max error 0 (largest value 10)" in text


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ([torch.ones(3, 8)], "input 0 is float32 3x8"),
        ([torch.ones(2, 8), torch.ones(2, 8)], "takes 1 inputs, got 2"),
        ([torch.ones(2, 8, dtype=torch.int64)], "input 0 is int64 2x8"),
    ],
    ids=["shape", "count", "dtype"],
)
def test_inputs_that_do_not_fit_are_refused(pte, inputs, what):
    torch.save(inputs, "inputs.pt")
    assert fails("run", pte, "--inputs", "inputs.pt") == (
        f"method 'forward': {what}; it takes float32 2x8"
    )


def test_inputs_that_are_missing_are_named(pte):
    error = fails("run", pte, "--inputs", "gone.pt")
    assert error.startswith("gone.pt: can't be loaded as inputs (FileNotFoundError: ")
    assert error.endswith("; write them with torch.save([tensor, ...], path)")


def test_an_unknown_method_is_refused(pte):
    assert fails("run --method back", pte) == f"{pte}: has no method 'back'; it has forward"
    assert fails("run --method back", pte, "--check", MLP) == (
        f"{MLP}: has no method 'back'; it has forward"
    )


def test_a_check_against_another_model_is_refused(two):
    assert fails("run", two, "--check", MLP) == (
        "method 'forward': input 0 is float32 2x8; it takes float32 3"
    )


# inspect and plugins


def test_inspect_shows_delegates_memory_and_kernels(pte):
    rows = [" ".join(line.split()) for line in succeeds("inspect", pte).splitlines()]
    assert any(row.startswith("XnnpackBackend cpu 2 ") for row in rows)
    assert any(row.startswith("planned memory cpu - ") for row in rows)
    assert "aten::native_layer_norm.out 1" in rows


def test_inspect_as_json_is_the_artifact(pte):
    assert json.loads(succeeds("inspect --json", pte)) == read.read(pte).to_dict()


def test_plugins_lists_those_that_are_ready():
    found = {row["name"]: row for row in json.loads(succeeds("plugins --json"))}
    cpu = found["cpu"]
    assert (cpu["distribution"], cpu["status"], cpu["ready"]) == ("etdev-cpu", "ready", True)
    assert cpu["devices"] == ["cpu"]
    assert {"claim_nodes", "probe"} <= set(cpu["hooks"])
    assert "etdev-cpu" in succeeds("plugins")


# Bad files


def _damaged(name: str, pte: Path, pt2: Path) -> Path:
    kind = pt2 if name.endswith(".pt2") else pte
    data = {
        "truncated": lambda: kind.read_bytes()[: kind.stat().st_size // 2],
        "text": lambda: b"some text\n",
        "random": lambda: random.Random(0).randbytes(4096),
        "disguised": lambda: pte.read_bytes()[:8] + random.Random(0).randbytes(4096),
        "empty": lambda: b"",
    }
    path = Path(name)
    if path.stem in data:
        path.write_bytes(data[path.stem]())
    return path


@pytest.mark.parametrize("name", ["truncated.pt2", "text.pt2", "empty.pt2"])
def test_a_damaged_pt2_is_named(name, pte, pt2):
    path = _damaged(name, pte, pt2)
    for command in ("plan", "lower -o net.pte"):
        error = fails(f"{command} --plugin cpu", path)
        assert error.startswith(f"{name}: can't be loaded as a .pt2 file (")
        assert error.endswith("; write it again with torch.export.save")


def test_a_missing_pt2_is_named():
    assert fails("lower -o net.pte gone.pt2") == (
        "gone.pt2: does not exist; give the path of a .pt2 file"
    )


@pytest.mark.parametrize("command", ["inspect", "inspect --json", "run"])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("missing.pte", "can't be read (No such file or directory)"),
        ("truncated.pte", "is damaged or truncated ("),
        ("disguised.pte", "is damaged or truncated ("),
        ("random.pte", "is not a .pte file"),
        ("text.pte", "is not a .pte file"),
        ("empty.pte", "is not a .pte file"),
    ],
)
def test_a_damaged_pte_is_named(command, name, what, pte, pt2):
    error = fails(command, _damaged(name, pte, pt2))
    assert error.startswith(f"{name}: {what}")
    assert error.endswith("; give a .pte that ExecuTorch wrote")


# Bad sources


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("raises", "calling it raised ValueError: no weights at broken.py:9; mend the function"),
        ("exits", "calling it raised SystemExit: 3 at broken.py:17; mend the function"),
        ("number", "returned int; return (module, example inputs)"),
        ("nothing", "returned NoneType; return (module, example inputs)"),
        ("several", "returned list; return (module, example inputs)"),
        (
            "bare",
            "returned a module without example inputs; return (module, example inputs)",
        ),
        (
            "limit",
            "there is no function 'limit'; it has Second, badly_shaped, bare, empty, exits, "
            "nothing, number, program",
        ),
        (
            "gone",
            "there is no function 'gone'; it has Second, badly_shaped, bare, empty, exits, "
            "nothing, number, program",
        ),
    ],
)
def test_a_function_that_gives_no_model_is_named(broken, name, what):
    for command in ("plan", "lower -o net.pte"):
        assert fails(f"{command} {broken}:{name}") == f"{broken}:{name}: {what}"


def test_a_function_that_raises_inside_torch_is_named_with_its_own_line(broken):
    error = fails(f"plan {broken}:raises_inside_torch")
    assert error.startswith(f"{broken}:raises_inside_torch: calling it raised RuntimeError: ")
    assert error.endswith(" at broken.py:13; mend the function")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1 / 0\n", "raised ZeroDivisionError: division by zero at top_of_mine.py:1"),
        ("import sys\nsys.exit(2)\n", "raised SystemExit: 2 at top_of_mine.py:2"),
        ("def (:\n", "raised SyntaxError: invalid syntax (top_of_mine.py, line 1)"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(here, text, what):
    (here / "top_of_mine.py").write_text(text)
    assert fails("lower -o net.pte top_of_mine.py:net") == (
        f"top_of_mine.py:net: importing it {what}; mend the function"
    )


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("gone.py:net", "there is no file 'gone.py'"),
        ("gone_of_mine:net", "no module named 'gone_of_mine'"),
        ("gone_of_mine.inner:net", "no module named 'gone_of_mine'"),
        ("mlp", "names no model"),
        ("models.nets:", "names no model"),
        (":mlp", "names no model"),
    ],
)
def test_a_source_that_is_not_there_is_named(source, what):
    assert fails("lower -o net.pte", source) == f"{source}: {what}; {FORMS}"


# Bad outputs


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("net.bin", "net.bin: does not end in .pte; name it model.pte"),
        ("net", "net: does not end in .pte; name it model.pte"),
        ("gone/net.pte", "gone/net.pte: there is no folder 'gone'; create it first"),
        ("folder.pte", "folder.pte: is a folder; choose another path"),
    ],
)
def test_a_bad_output_is_refused_before_the_long_work(here, output, message):
    (here / "folder.pte").mkdir()
    done = etdev_(f"lower {MLP} -o {output}")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"error: {message}\n")


def test_an_unwritable_folder_is_refused_before_the_long_work(sealed):
    done = etdev_(f"lower {MLP} -o", sealed / "net.pte")
    assert (done.exit_code, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {sealed}/net.pte: can't be written (")
    assert line.endswith("); choose another path")


# Bad plugins, devices and registries


def test_an_unknown_plugin_is_refused():
    error = fails(f"lower {MLP} -o net.pte --plugin gone")
    assert error.startswith("gone: not installed; pip install etdev-gone (installed are ")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (
            "cpu=quantum",
            "devices['cpu']: unknown type 'quantum'; valid are cpu and cuda:0 to cuda:127",
        ),
        (
            "cpu=cuda:x",
            "devices['cpu']: cannot read 'cuda:x'; valid are cpu and cuda:0 to cuda:127",
        ),
        ("trt=cuda:1", "trt: is pinned to a device but not asked; the plugins are cpu"),
    ],
)
def test_a_bad_device_is_refused(device, message):
    assert fails(f"lower {MLP} -o net.pte --plugin cpu --device {device}") == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "strict = true\n\n[plugins.cpu]\noptoinal = true\n",
            "mine.toml, line 4: plugins.cpu.optoinal is an unknown key; did you mean optional?",
        ),
        (
            "\nstrict = 3\n",
            "mine.toml, line 2: strict is 3; it must be true or false",
        ),
        (
            "[plugins.cpu]\ndevice = 'tpu'\n",
            "mine.toml, line 2: plugins.cpu.device unknown type 'tpu'; "
            "valid are cpu and cuda:0 to cuda:127",
        ),
    ],
)
def test_a_malformed_registry_is_named_with_line_and_key(here, text, message):
    (here / "mine.toml").write_text(text)
    assert fails("plugins --registry mine.toml") == message
    assert fails(f"lower {MLP} -o net.pte --registry mine.toml") == message


def test_a_registry_that_is_no_toml_is_named_with_its_line(here):
    (here / "registry.toml").write_text("strict = true\nplugins =\n")
    error = fails("plugins")
    assert error.startswith("registry.toml: is not valid TOML: ")
    assert error.endswith(" (at line 2, column 10); mend that line")


def test_a_missing_registry_is_named():
    assert fails("plugins --registry gone.toml") == (
        "gone.toml: cannot be read (No such file or directory); give the path of a registry.toml"
    )


def test_a_long_message_stays_on_one_line():
    name = "x" * 300
    assert fails(f"inspect {name}.pte").endswith("; give a .pte that ExecuTorch wrote")


# --debug and wrong usage


@pytest.mark.parametrize("line", ["--debug inspect gone.pte", "inspect --debug gone.pte"])
def test_debug_shows_the_traceback(line):
    done = etdev_(line)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "Traceback (most recent call last):" in done.stderr
    assert "FileNotFoundError" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("etdev.errors.ArtifactError: gone.pte: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "Usage: etdev [OPTIONS] COMMAND"),
        ("frobnicate", "No such command 'frobnicate'"),
        ("lower", "Missing argument 'SOURCE'"),
        ("lower net.py:model", "Missing option '-o'"),
        ("plan net.py:model --bad", "No such option '--bad'"),
        ("plan net.py:model --device cpu", "'cpu' is not PLUGIN=DEVICE"),
        ("plan net.py:model --device =cpu", "'=cpu' is not PLUGIN=DEVICE"),
        ("run net.pte --tolerance 1", "--tolerance needs --check SOURCE"),
        ("run net.pte --check net.py:model --tolerance much", "'much' is not a valid float"),
        ("run net.pte --repeat 0", "0 is not in the range x>=1"),
    ],
)
def test_wrong_usage_exits_with_2(line, message):
    done = etdev_(line)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


# The real process


def test_a_process_keeps_results_and_progress_apart(here):
    done = process("lower", MLP, "--plugin", "cpu", "-o", "net.pte")
    assert done.returncode == 0
    assert done.stdout.startswith("net.pte: method forward, 2 delegates, nodes: cpu 3, portable 1")
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr.startswith("load PyTorch and ExecuTorch …\n")
    assert [path.name for path in here.iterdir()] == ["net.pte"]


def test_a_process_fails_in_one_line_where_torch_logs_a_traceback(broken):
    done = process(
        "plan", f"{broken}:badly_shaped", "--plugin", "cpu", env={**os.environ, "PYTHONPATH": TESTS}
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    *progress, error = done.stderr.splitlines()
    assert error.startswith("error: forward: torch.export failed: RuntimeError: ")
    assert all(line.endswith("…") for line in progress)


def test_a_process_exits_with_the_code_of_its_error(here):
    error = "error: net.bin: does not end in .pte; name it model.pte\n"
    done = process("lower", MLP, "-o", "net.bin")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", error)
    assert process("lower").returncode == 2
    assert process("--version").returncode == 0


def test_a_reader_that_leaves_is_no_error():
    read, write = os.pipe()
    os.close(read)
    try:
        done = process("plugins", capture_output=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def _files() -> list[Path]:
    return sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts)


def _two_source() -> str:
    Path("two_of_mine.py").write_text(
        "import torch\n\nclass Two(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x + 1, x * 2\n\n"
        "def net():\n    return Two(), torch.ones(3)\n"
    )
    return "two_of_mine.py:net"
