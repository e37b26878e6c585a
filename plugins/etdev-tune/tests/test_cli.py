"""`etdev tune`: what it writes and prints, on a scripted target."""

from __future__ import annotations

import json

import pytest
import torch
from support.shell import MLP, fails, invoke, succeeds
from support.toys.target import Scripted

from etdev.app import options


@pytest.fixture
def target(here, monkeypatch):
    """A target on which every program takes 1 ms, in place of this machine."""
    scripted = Scripted(lambda backends: 1 if backends else 10)

    monkeypatch.setattr("etdev_tune.tune.open_runner", lambda *_: scripted)
    # Time for the candidates that are always tried, and for no others.
    monkeypatch.setattr("etdev_tune.search.Search.has_time", lambda _: False)
    return scripted


TUNE = f"tune {MLP} -o net.pte --plugin cpu --budget 600s --store kept"


def drawn(page):
    """Return the data of a page."""
    text = page.read_text("utf-8").partition('<script id="data"')[2]
    return json.loads(text.partition(">")[2].partition("</script>")[0])


def test_a_tuning_is_written_shown_and_made_again(target, here):
    out = succeeds(f"{TUNE} --html tuned.html")
    assert "untuned" in out
    assert drawn(here / "tuned.html")["plan"]["methods"], "the plan is known after a tuning"
    again = f"lower {MLP} -o net.pte --registry net.registry.toml --lock net.lock --locked"
    assert f"net.pte: made again by etdev {again}\n" in out
    assert drawn(here / "tuned.html")["note"] == f"Made again by etdev {again}"
    shown = succeeds("tune -o net.pte --show")
    assert shown.splitlines()[:5] == out.splitlines()[:5]
    document = json.loads(succeeds("tune -o net.pte --show --json --html net.html"))
    assert (document["schema"], document["chosen"]) == ("etdev.tuning", "untuned")
    ((title, points),) = [
        (chart["title"], chart["points"]) for chart in drawn(here / "net.html")["scatters"]
    ]
    assert title == "Candidates; the front is marked"
    assert {point["name"].partition(" ")[0]: point["y"] for point in points} == {
        str(number): trial["latency_ms"]["value"]
        for number, trial in enumerate(document["trials"])
        if trial["latency_ms"]
    }
    assert any(point["name"].endswith("(chosen)") for point in points)
    first = (here / "net.pte").read_bytes()
    succeeds(again)
    assert (here / "net.pte").read_bytes() == first


def test_ctrl_c_keeps_what_was_measured_and_writes_nothing(target, here):
    target.interrupt(after=2)
    done = invoke(TUNE)
    assert done.exit_code == 130
    assert done.stderr.splitlines()[-1].startswith("interrupted: measure")
    assert not list(here.glob("net.*"))
    assert json.loads(succeeds(f"{TUNE} --json"))["reused"] == 2


def test_inputs_come_from_files_by_method(target, here):
    torch.save([torch.ones(2, 8)], "ones.pt")
    torch.save(torch.zeros(2, 8), "a:zeros.pt")
    given = "--inputs forward:ones.pt --inputs a:zeros.pt"
    document = json.loads(succeeds(f"{TUNE} {given} --json"))
    assert (document["calls"], document["timed"]) == (3, 2)
    (request, *_) = target.requests
    assert [bool(values[0].any()) for values in request.inputs[:2]] == [True, False]
    assert request.timed == (0, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{TUNE} --target box", "box: is not a target; the registry has none; write "
         '[targets.box] with triple = "aarch64-linux-gnu" into registry.toml'),
        (f"{TUNE} --tolerance -1", "tolerance: is -1.0; give a number of at least 0, such as 1e-3"),
        (f"tune {MLP} -o no/net.pte", "no/net.pte: there is no folder 'no'; create it first"),
        (f"tune {MLP} -o net.txt", "net.txt: does not end in .pte; name it net.pte"),
        ("tune nets.py:model -o net.pte", "nets.py:model: there is no file 'nets.py'; write "
         "file.pt2, package.module:function or file.py:function"),
        ("tune -o net.pte --show", "net.tuning.json: can't be read (No such file or directory); "
         "write it with etdev tune SOURCE -o net.pte"),
    ],
)  # fmt: skip
def test_errors_are_named_and_leave_the_folder_as_it_was(target, words, message):
    assert fails(words) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tune", "give SOURCE and -o FILE.pte, or --show and -o"),
        (f"tune {MLP}", "give SOURCE and -o FILE.pte, or --show and -o"),
        (f"{TUNE} --no-store", "give --store or --no-store, not both"),
        (f"{TUNE} --budget soon", "'soon' is not a duration; write 10m or 90s"),
        (f"{TUNE} --budget 0m", "'0m' is not a duration; write 10m or 90s"),
        (f"{TUNE} --objective beauty", "'beauty' is not one of"),
    ],
)
def test_wrong_usage_is_told(here, words, message):
    done = invoke(words)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5m", 90), ("2 h", 7200), ("5s", 5)])
def test_durations(text, seconds):
    assert options.DURATION.convert(text, None, None) == seconds


def test_a_plugin_that_can_not_compile_here_is_left_out_unless_it_is_named(target, here):
    every = TUNE.replace(" --plugin cpu", "")
    assert "trt" not in succeeds(every)
    assert fails(f"{every} --plugin trt").startswith("trt: can't compile here")


def test_a_system_without_forks_is_named_before_anything_is_lowered(here, monkeypatch):
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    monkeypatch.setattr("etdev_tune.builder.Builder.build", None)
    told = fails(TUNE)
    assert told.startswith("local: works in forks of a process, which ")
    assert told.endswith(" doesn't have; run it on Linux or macOS, or on Windows in WSL")
