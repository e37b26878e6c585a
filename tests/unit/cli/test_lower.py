"""etdev lower: the file, what is said about it, and paths that can't be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from support.shell import MLP, cells, fails, invoke, succeeds

from etdev.pipeline import PIPELINE
from etdev.pte.read import read
from etdev.runtime.child import Child


@pytest.fixture(scope="module")
def lowered(tmp_path_factory) -> tuple[Path, Result]:
    """The MLP as a .pte, and what `etdev lower` said."""
    path = tmp_path_factory.mktemp("lowered") / "mlp.pte"
    return path, invoke(f"lower {MLP} --plugin cpu --runner python -o", path)


def test_lower_writes_the_file_and_says_what_is_in_it(lowered):
    path, done = lowered
    assert done.exit_code == 0
    assert [line.partition("normalization.py:")[0] for line in cells(done.stdout)] == [
        f"{path}: {path.stat().st_size / 1024:.1f} KiB",
        f"{path}: method forward: 2 delegates, 4 nodes: "
        "cpu 3 (100 % of the FLOPs, 78 % of the bytes), portable 1 (22 % of the bytes)",
        f"{path}: memory: 4.1 KiB on cpu planned, 13.0 KiB of weights in delegates, "
        "which need more to run",
        f"{path}: partitions: 2 compiled",
        "on portable kernels nodes cost why where",
        "aten.native_layer_norm.default 1 22 % of the bytes "
        "cpu: XNNPACK has no native_layer_norm.default ",
        f"{path}: verified over 20 calls within 0.0001 of the largest value, also at inf, nan",
    ]
    (method,) = read(path).methods
    assert [delegate.backend_id for delegate in method.delegates] == ["XnnpackBackend"] * 2


def test_lower_says_stages_and_their_times_on_stderr(lowered):
    words = [line.split()[0] for line in lowered[1].stderr.splitlines()]
    # On a busy machine a plugin may take longer than the command is silent.
    words = [word for word in words if word != "waiting"]
    stages = ["load", "model", *(step.stage.name.split()[0] for step in PIPELINE)]
    assert words == [*stages, "took", "next:"]
    took, _, slow = lowered[1].stderr.splitlines()[-2].removeprefix("took ").partition(" s: ")
    seconds = [float(each.split()[-1]) for each in slow.split(", ")]
    assert seconds == sorted(seconds, reverse=True)
    assert sum(seconds) == pytest.approx(float(took), rel=0.2, abs=0.3)
    assert float(took) > 0
    assert lowered[1].stderr.splitlines()[-1] == f"next: etdev run {lowered[0]} --profile"


def test_lower_says_what_changed_since_the_file_that_it_replaces(here):
    pin = "--pin op=aten.relu.*:plugin=portable"
    outputs = [
        succeeds(f"lower {MLP} -o net.pte --plugin cpu --no-verify {p}") for p in ("", pin, pin)
    ]
    told = [[line for line in out.splitlines() if "since the last one" in line] for out in outputs]
    assert told[::2] == [[], []]
    assert told[1] == [
        "net.pte: since the last one: 1 node moved, forward: nodes of cpu 3 → 2, "
        "forward: nodes of portable 1 → 2, forward: bytes moved by portable kernels 6160 → 10256"
    ]
    succeeds(f"lower {MLP} -o bare.pte --plugin cpu --no-verify --no-ledger")
    assert "since" not in succeeds(f"lower {MLP} -o bare.pte --plugin cpu --no-verify {pin}")


@pytest.mark.parametrize("word", ["", "--verify"])
def test_lower_writes_nothing_that_differs_from_pytorch(here, word):
    # A kernel that multiplies no zero by an infinite slope.
    (here / "leak.py").write_text(
        "import torch\n\n\nclass Leak(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.nn.functional.leaky_relu(x, float('inf'))\n\n\n"
        "def model():\n    return Leak(), (torch.zeros(3, dtype=torch.float64),)\n"
    )
    pin = "--pin op=aten.add.*:plugin=portable"
    done = invoke(f"lower leak.py:model -o leak.pte --plugin cpu {pin} --device cpu=cpu {word}")
    assert (done.exit_code, done.stdout) == (1, "")
    error, command = done.stderr.splitlines()[-2:]
    quoted = "--pin 'op=aten.add.*:plugin=portable' --device 'cpu.*=cpu'"
    assert command == f"next: etdev reduce leak.py:model --plugin cpu {quoted} -o fault"
    assert error.startswith(
        "error: method 'forward': step 0: output 0 is 0 at [0], in eager PyTorch NaN "
    )
    assert "; kernel of aten.leaky_relu.default" in error
    assert [file.name for file in here.iterdir() if file.suffix != ""] == ["leak.py"]
    if not word:
        succeeds("lower leak.py:model -o leak.pte --plugin cpu --no-verify")
        assert Path("leak.pte").is_file()


def test_lower_writes_what_cannot_be_verified_unless_that_was_asked_for(here):
    (here / "noise.py").write_text(
        "import torch\n\n\nclass Noise(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x + torch.rand(3)\n\n\n"
        "def model():\n    return Noise(), (torch.ones(3),)\n"
    )
    why = "not verified: method 'forward': it draws random numbers"
    for word in ("--verify", "--edges"):
        error = fails(f"lower noise.py:model -o noise.pte --plugin cpu {word}")
        assert error == f"{why}; leave out strict, or --verify, to accept that"
    told = succeeds("lower noise.py:model -o noise.pte --plugin cpu")
    assert told.splitlines()[-1] == f"noise.pte: {why}"
    assert Path("noise.pte").is_file()


def test_no_verify_runs_nothing(here, monkeypatch):
    monkeypatch.delattr(Child, "_started")
    told = succeeds(f"lower {MLP} -o mlp.pte --plugin cpu --no-verify")
    assert told.splitlines()[-1] == "mlp.pte: not verified: --no-verify"


@pytest.mark.parametrize("word", ["--verify", "--edges"])
def test_verify_and_no_verify_exclude_each_other(word):
    done = invoke(f"lower {MLP} -o mlp.pte --no-verify {word}")
    assert done.exit_code == 2
    assert "give --no-verify, or --verify, --edges and --runner" in done.stderr


def test_lower_leaves_one_file(lowered):
    path, _ = lowered
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("net.bin", "net.bin: does not end in .pte; name it net.pte"),
        ("net", "net: does not end in .pte; name it net.pte"),
        ("gone/net.pte", "gone/net.pte: there is no folder 'gone'; create it first"),
        ("folder.pte", "folder.pte: is a folder; choose another path"),
    ],
)
def test_a_bad_output_is_refused_before_the_long_work(here, output, message):
    (here / "folder.pte").mkdir()
    done = invoke(f"lower {MLP} -o {output}")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"error: {message}\n")


def test_ctrl_c_is_told_from_an_error(here):
    Path("net.py").write_text("def model():\n    raise KeyboardInterrupt\n")
    done = invoke("lower net.py:model -o net.pte")
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1] == "interrupted: model net.py:model"


def test_two_processes_write_the_same_file(here, lowered):
    done = invoke(f"lower {MLP} --plugin cpu --jobs 2 --on-failure fallback -o mlp.pte")
    assert done.exit_code == 0
    assert Path("mlp.pte").read_bytes() == lowered[0].read_bytes()


def test_no_jobs_are_wrong_usage(here):
    assert invoke(f"lower {MLP} --jobs 0 -o mlp.pte").exit_code == 2
    assert invoke(f"lower {MLP} --on-failure ignore -o mlp.pte").exit_code == 2
