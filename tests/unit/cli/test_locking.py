"""`etdev lower --lock` and `--locked`: the same .pte again, or nothing and what differs."""

import json
import shutil
from pathlib import Path

import pytest
from support.shell import MLP, TESTS, error_of, invoke, succeeds

NET = f"{TESTS / 'support/models/nets.py'}"


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A folder with a locked .pte of the MLP, and the cache."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "registry.toml").write_text("[plugins.cpu]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ETDEV_CACHE", str(folder / "cache"))
        succeeds("lower", MLP, "-o", "mlp.pte", "--lock", "etdev.lock")
    return folder


@pytest.fixture
def desk(locked, tmp_path, monkeypatch):
    """A copy of that folder for each test."""
    shutil.copytree(locked, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETDEV_CACHE", str(tmp_path / "cache"))
    return tmp_path


def again(*words, source=MLP):
    return succeeds("lower", source, "-o", "again.pte", "--locked", *words)


def refused(*words, source=MLP):
    """The error of a locked lowering, which leaves no file."""
    done = invoke("lower", source, "-o", "again.pte", "--locked", *words)
    assert done.exit_code == 1

    assert not Path("again.pte").exists()
    return error_of(done.stderr)


def test_the_same_is_made_again_without_and_with_the_cache(desk):
    again()
    first = (desk / "mlp.pte").read_bytes()
    assert (desk / "again.pte").read_bytes() == first
    lock = (desk / "etdev.lock").read_bytes()
    again("--lock", "etdev.lock")
    assert (desk / "etdev.lock").read_bytes() == lock


def test_a_lock_tells_what_the_pte_was_made_with(desk):
    lock = json.loads((desk / "etdev.lock").read_text())
    cpu, portable = lock["setup"]["plugins"]
    assert (cpu["name"], cpu["options"]["per_op"]) == ("cpu", "False")
    assert (portable["name"], portable["options"]["kernels"]) == ("portable", "optimized")
    assert {"torch", "executorch", "etdev"} <= lock["setup"]["versions"].keys()
    keys = [partition["key"] for partition in lock["program"]["forward"]]
    assert [len(key) for key in keys] == [64, 64]


@pytest.mark.suite
def test_without_a_cache_there_are_no_keys_and_the_digests_hold(desk):
    succeeds("lower", MLP, "-o", "mlp.pte", "--lock", "other.lock", "--no-cache")
    lock = json.loads((desk / "other.lock").read_text())
    assert [p["key"] for p in lock["program"]["forward"]] == ["", ""]
    assert lock["files"] == json.loads((desk / "etdev.lock").read_text())["files"]
    again("--no-cache")
    again("--lock", "other.lock")


@pytest.mark.parametrize(
    ("registry", "problem"),
    [
        (
            "[plugins.cpu]\n[plugins.cpu.options]\nper_op = true\n",
            "option per_op of plugin cpu was False, and is True",
        ),
        (
            "[plugins.cpu]\nmin_nodes = 2\n",
            "min_nodes of plugin cpu was none, and is 2",
        ),
        (
            '[plugins.cpu]\n[[pin]]\nop = "aten.gelu*"\nplugin = "portable"\n',
            "pins was [], and is ['op=aten.gelu*:plugin=portable']",
        ),
        (
            "[plugins.openvino]\n[plugins.cpu]\n",
            "the list of plugins was cpu, portable, and is openvino, cpu, portable",
        ),
        (
            '[plugins.cpu]\n[plugins.portable.options]\nkernels = "portable"\n',
            "option kernels of plugin portable was optimized, and is portable",
        ),
        ("strict = true\n[plugins.cpu]\n", "strict was False, and is True"),
        ('on_failure = "fallback"\n[plugins.cpu]\n', "on_failure was error, and is fallback"),
    ],
    ids=[
        "an option",
        "a limit",
        "a pin",
        "a plugin",
        "kernels",
        "strict",
        "what becomes of failures",
    ],
)
def test_another_setup_is_refused_before_the_lowering(desk, registry, problem):
    (desk / "registry.toml").write_text('unlisted = "ignore"\n' + registry)
    message = refused()
    assert message.startswith("etdev.lock: does not match this lowering: ")
    assert problem in message
    assert message.endswith("; restore that, or lock it again without --locked")


def test_limits_devices_and_a_budget_are_read_back_as_they_are(desk):
    (desk / "registry.toml").write_text(
        'unlisted = "ignore"\n[budget]\nmax_fallback_nodes = 3\n'
        '[plugins.cpu]\nmethods = ["forward"]\ndevice = "cpu"\n'
    )
    succeeds("lower", MLP, "-o", "mlp.pte", "--lock", "etdev.lock")
    again()


def test_another_option_of_the_command_is_refused(desk):
    assert "on_failure was error, and is fallback" in refused("--on-failure", "fallback")


def test_another_version_of_torch_is_refused(desk):
    path = desk / "etdev.lock"
    lock = json.loads(path.read_text())
    locked, lock["setup"]["versions"]["torch"] = lock["setup"]["versions"]["torch"], "1.0"
    path.write_text(json.dumps(lock))
    assert f"torch was 1.0, and is {locked}" in refused()


def test_another_model_is_refused(desk):
    message = refused(source=f"{NET}:conv_net")
    assert "partition cpu_0 of method 'forward' is compiled from another model or weight" in message


def test_another_weight_is_refused(desk):
    (desk / "net.py").write_text(
        "import torch\nfrom support.models import nets\n\n"
        "def model():\n"
        "    module, inputs = nets.mlp()\n"
        "    with torch.no_grad():\n"
        "        list(module.parameters())[-1].add_(1)\n"
        "    return module, inputs\n"
    )
    message = refused(source="net.py:model")
    assert "partition cpu_1 of method 'forward' is compiled from another model" in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a lock of version 1"),
        ("[]", "is not a lock of version 1"),
        ('{"lock": 2}', "is not a lock of version 1"),
        ('{"lock": 1}', "is not a lock of version 1"),
        ('{"lock": 1, "setup": 1, "program": 2, "files": 3}', "is not a lock of version 1"),
        (None, "can't be read (No such file or directory)"),
    ],
)
def test_what_is_not_a_lock_is_named(desk, text, problem):
    path = desk / "etdev.lock"
    path.unlink() if text is None else path.write_text(text)
    assert refused() == (f"etdev.lock: {problem}; write it with etdev lower --lock etdev.lock")


def test_a_lock_that_can_not_be_written_is_an_error_before_the_work(desk):
    done = invoke("lower", MLP, "-o", "new.pte", "--lock", "nowhere/etdev.lock")
    assert done.exit_code == 1
    assert "there is no folder 'nowhere'; create it first" in done.stderr
    assert not (desk / "new.pte").exists()
