"""Options that commands share: plugins, devices, pins and the registry."""

from __future__ import annotations

import pytest
from support.shell import MLP, fails, invoke, succeeds

from etdev import Plan
from etdev.cli import progress


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"plan {MLP} --plugin cpuu", "cpuu: not installed; did you mean cpu? (installed are "),
        (f"explain {MLP} --plugin cpuu", "cpuu: not installed; did you mean cpu? (installed are "),
        (
            f"lower {MLP} -o net.pte --plugin cpu --device trt=cuda:1",
            "trt: is pinned to a device but not asked; the plugins are cpu, portable",
        ),
        (f"run net.pte --check {MLP} --bisect --plugin cpuu", "cpuu: not installed; did you "),
        ("plan gone.py:net", "gone.py:net: there is no file 'gone.py'; "),
        ("plan net.py", "net.py: there is no file 'net.py'; "),
        (f"plan {MLP}x", f"{MLP}x: there is no function 'mlpx'; did you mean mlp?"),
        (f"lower {MLP} -o net.pte --runner cp", "cp: not installed; installed are cpp, python"),
        (f"lower {MLP} -o net.pte --locked", "etdev.lock: can't be read (No such file or "),
    ],
)
def test_names_are_checked_before_torch_is_loaded(words, message, monkeypatch):
    monkeypatch.setattr(progress, "import_torch", lambda *_: pytest.fail("loads torch"))
    assert fails(words).startswith(message)


def test_a_misspelt_option_of_a_plugin_is_corrected(here):
    (here / "registry.toml").write_text("[plugins.openvino.options]\n\ndevcie = 'CPU'\n")
    error = fails(f"plan {MLP}")
    assert "devcie" in error
    assert "did you mean device?" in error


def test_pinned_devices_and_nodes_show_in_the_plan():
    pin = "module=1:plugin=portable"
    options = f"--plugin cpu --device cpu.forward=cpu --pin {pin}"
    planned = Plan.from_json(succeeds(f"plan {MLP} {options} --json"))
    assert {partition.device_source for partition in planned.partitions} == {"pinned"}
    assert {str(entry.pin) for entry in planned["forward"].ledger if entry.pin} == {pin}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--device cpu", "Invalid value for --device: 'cpu' is not PLUGIN=DEVICE"),
        ("--device =cpu", "Invalid value for --device: '=cpu' is not PLUGIN=DEVICE"),
        (
            "--pin op=aten.add.*",
            "Invalid value for --pin: can't read 'op=aten.add.*'; "
            "write module=encoder.layer.0:plugin=cpu",
        ),
    ],
)
def test_what_can_not_be_read_is_wrong_usage(option, message):
    done = invoke(f"plan {MLP} {option}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == f"Error: {message}"


def test_a_malformed_registry_is_named_with_its_key(here):
    (here / "mine.toml").write_text("strict = true\n\n[plugins.cpu]\noptoinal = true\n")
    message = "mine.toml: plugins.cpu.optoinal is an unknown key; did you mean optional?"
    for words in ("plugins", f"lower {MLP} -o net.pte"):
        assert fails(f"{words} --registry mine.toml") == message


def test_a_missing_registry_is_named():
    assert fails("plugins --registry gone.toml") == (
        "gone.toml: cannot be read (No such file or directory); give the path of a registry.toml"
    )


def test_a_processor_is_that_of_an_emulated_target(here):
    targets = 'pi = {triple = "aarch64-linux-gnu", on = "ssh:pi"}'
    (here / "registry.toml").write_text(f"[plugins.cpu]\n[targets]\n{targets}\n")
    command = "run net.pte --registry registry.toml --cpu cortex-a57"
    assert "--cpu cortex-a57 needs --target" in invoke(command).stderr
    assert "pi: runs on ssh:pi, where no processor is emulated" in fails(f"{command} --target pi")
