"""The generation loop of an app: token by token that of Python, its end, and the full cache."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
import torch
from etdev_cpp.app import write
from support.decoders import decoder
from support.decoders import encoder_decoder as small
from support.emulator import PI, emulated

from etdev import Lowerer

pytest.importorskip("etdev_llm")
from etdev_llm import generation
from etdev_llm.player import Player
from etdev_llm.sampling import Sampling

pytestmark = pytest.mark.usefixtures("compiles")

LENGTH = 24


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A decoder that ends a text with every fifth token."""
    model = decoder("llama", num_hidden_layers=1, eos_token_id=list(range(0, 96, 5)))
    made = generation(model, LENGTH)
    lowered = Lowerer(["cpu"]).lower(made.methods, settings=made.settings)
    return lowered.save(tmp_path_factory.mktemp("net") / "net.pte")


def built(program, folder, target=None):
    folder = write(program, folder, target=target)
    strict = {**os.environ, "CXXFLAGS": "-Werror"}
    done = subprocess.run(
        ["./build.sh"], cwd=folder, env=strict, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "build" / "net"


def ran(binary, *words, code=0):
    words = [*binary, "--generate", *map(str, words)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done


def assert_generates(binary, program):
    player = Player(program)
    for prompt in ([3], list(range(1, 9)), [7] * LENGTH):
        count = min(12, LENGTH - len(prompt) + 1)
        text = ",".join(map(str, prompt))
        for options in ({}, {"temperature": 5.0, "seed": 3}, {"temperature": 2.0, "top_k": 9},
                        {"temperature": 4.0, "top_p": 0.6, "seed": 1}):  # fmt: skip
            wanted = [s.next for s in player.generate(prompt, count, sampling=Sampling(**options))]
            given = [f for k, v in options.items() for f in (f"--{k.replace('_', '-')}", v)]
            words = [text, "--count", count, *given]
            found = json.loads(f"[{ran(binary, *words, '--no-stop').stdout}]")
            assert found == wanted
            end = next((n for n, token in enumerate(wanted, 1) if token % 5 == 0), count)
            assert json.loads(f"[{ran(binary, *words).stdout}]") == wanted[:end]


def test_an_app_generates_token_by_token_what_python_does(program, tmp_path):
    binary = [built(program, tmp_path / "app")]
    assert_generates(binary, program)
    told = ran(binary, "1,2", "--count", 3, "--no-stop").stderr.splitlines()
    # ExecuTorch logs there, too.
    assert [line.split()[0] for line in told[-2:]] == ["prefill", "decode"]
    assert all(line.endswith(" tokens/s") for line in told[-2:])
    told = ran(binary, "1,2,3", "--count", 23, code=1).stderr
    assert told.endswith(
        "net.pte: the cache is full: it has 24 positions, and 3 tokens with 23 more need 25; "
        "generate at most 22\n"
    )
    told = ran(binary, ",".join("1" * 25), "--count", 1, code=1).stderr
    assert told.endswith("25 tokens with 1 more need 25; give a shorter prompt\n")
    assert "give tokens of 0 to 95" in ran(binary, "1,96", code=2).stderr
    assert "usage: --generate TOKENS" in ran(binary, "1", "--tokens", code=2).stderr
    readme = (tmp_path / "app" / "README.md").read_text()
    assert "`./build/net --generate 1,2,3 --count 20` generates tokens." in readme


@pytest.mark.suite
@emulated
def test_an_app_for_another_processor_generates_what_python_does(program, tmp_path):
    binary = built(program, tmp_path / "app", PI)
    assert_generates(
        ["qemu-aarch64", "-cpu", "cortex-a76", "-L", f"/usr/{PI.triple}", binary], program
    )


@torch.no_grad()
def sensitive(model):
    """Enlarge the weights of layers, so that other sources have other tokens."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and not re.search("embed|shared", name):
            weight.mul_(10)
    return model


def texts(_):
    """Sources of tokens, the words for each, and one that is too long."""
    sources = [torch.arange(start, start + n)[None] for start, n in ((7, 20), (40, 3))]
    given = [",".join(map(str, source[0].tolist())) for source in sources]
    return sources, given, f"{given[0]},1"


def sounds(folder):
    """Sources of features, the files with each, and one that is too short."""
    sources = list(torch.randn(2, 1, 8, 40, generator=torch.Generator().manual_seed(0)))
    files = [folder / "0.bin", folder / "1.bin", folder / "short.bin"]
    for file, source in zip(files, [*sources, sources[0][..., 1:]], strict=True):
        source.numpy().tofile(file)
    return sources, files[:2], files[2]


@pytest.mark.suite
@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("t5", "of encode has other sizes than the method takes"),
        ("whisper", "short.bin is not a file with the values of float32 1 x 8 x 40"),
    ],
)
def test_an_app_hears_a_source_as_python_does(kind, refused, tmp_path):
    made = generation(sensitive(small(kind)), 16, source_length=20)
    lowered = Lowerer(["cpu"]).lower(made.methods, settings=made.settings)
    program = lowered.save(tmp_path / "net.pte")
    binary = [built(program, tmp_path / "app")]
    sources, given, wrong = (sounds if kind == "whisper" else texts)(tmp_path)
    player, heard = Player(program), []
    options = {"temperature": 3.0, "seed": 5}
    for source, words in zip(sources, given, strict=True):
        player.hear(source)
        for tokens, more in (([player.first], []), ([3, 4], ["--tokens", "3,4"])):
            for sampling in ({}, options):
                steps = player.generate(tokens, 8, sampling=Sampling(**sampling))
                heard.append([step.next for step in steps])
                more += [f for k, v in sampling.items() for f in (f"--{k}", v)]
                told = ran(binary, words, "--count", 8, "--no-stop", *more).stdout
                assert json.loads(f"[{told}]") == heard[-1]
    assert len({tuple(tokens) for tokens in heard[::2]}) == 4
    assert refused in ran(binary, wrong, "--count", 2, code=1).stderr
    assert "usage: --generate SOURCE [--tokens TOKENS]" in ran(binary, code=2).stderr
    readme = (tmp_path / "app" / "README.md").read_text()
    assert "and `--tokens 1,2` begins their text" in readme
