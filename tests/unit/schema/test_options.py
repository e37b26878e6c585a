"""A setting is one field: what users see of it has its name, default and meaning."""

import inspect
from pathlib import Path

import attrs
import click
import pytest
from support.reference import described_arguments

import etdev
from etdev import EtdevError, Limits, Registry, RegistryError, registry
from etdev.cli import options
from etdev.registry.registry import tomllib
from etdev.schema.device import Device
from etdev.schema.options import Options, Surface, resolved, settings_on

FILE = Path("registry.toml")
# What a lowering is made of, besides its settings.
OTHERS = {"plugins", "registry", "listener", "method"}


def names(surface):
    return [own.name for own in settings_on(surface)]


@pytest.mark.parametrize(
    ("function", "surface"),
    [(etdev.Lowerer, Surface.ARGUMENT), (etdev.partitioner, Surface.PARTITIONER)],
    ids=["Lowerer", "partitioner"],
)
def test_arguments_are_the_settings_in_their_order(function, surface):
    parameters = inspect.signature(function).parameters.values()
    given = [own for own in parameters if own.name not in OTHERS]
    assert [own.name for own in given] == names(surface)
    assert {own.default for own in given} == {None}
    assert {own.kind for own in given} == {inspect.Parameter.KEYWORD_ONLY}
    documented = described_arguments(function)
    assert not [name for name in names(surface) if not documented.get(name)]


def parameters(decorator):
    """Return the options that a decorator adds to a command, with their help, by setting."""
    command = click.command()(decorator(lambda **_: None))
    return {own.name: own.help for own in command.params}


@pytest.mark.parametrize(
    ("decorator", "surface"),
    [(options.ruling, Surface.COMMAND), (options.workers, Surface.COMPILING)],
    ids=["ruling", "workers"],
)
def test_commands_have_an_option_with_help_for_each_setting(decorator, surface):
    shown = parameters(decorator)
    assert not [name for name in names(surface) if not shown.get(name)]


def test_the_manual_in_the_registry_has_each_setting():
    text = registry.default_path().read_text()
    manual = "\n".join(line[4:] for line in text.splitlines() if line.startswith("#   "))
    listed = tomllib.loads(manual).keys() | tomllib.loads(text).keys()
    keys = {own.metadata["key"] or own.name for own in settings_on(Surface.REGISTRY)}
    assert keys | {"plugins"} == listed


def test_a_setting_that_stands_nowhere_or_means_nothing_is_none():
    for own in attrs.fields(Options):
        assert own.metadata["surfaces"], own.name
        assert own.metadata["help"].endswith("."), own.name


def test_an_argument_precedes_the_registry_which_precedes_the_default():
    table = registry.parse('strict = true\nsimplify = false\non_failure = "fallback"\n', FILE)
    known = resolved({"strict": False, "jobs": 2, "plugins": ["cpu"], "budget": None}, table)
    assert (known.strict, known.simplify, known.share_state) == (False, False, True)
    assert (known.jobs, known.falls_back, known.budget) == (2, True, None)


def test_a_registry_made_in_python_is_checked_as_arguments_are():
    with pytest.raises(EtdevError, match=r"^strict: is 'no'; it must be true or false$"):
        etdev.Lowerer([], registry=Registry(strict="no"))
    with pytest.raises(RegistryError, match=r"^registry: 'jobs' must be >= 1: 0$"):
        Registry(jobs=0)


@pytest.mark.parametrize(
    ("given", "device"),
    [({"forward": "cuda:1"}, "cuda:1"), ("cuda:2", "cuda:2"), ({"other": "cuda:1"}, "cuda:3")],
)
def test_a_device_for_all_methods_precedes_one_that_a_registry_has_for_one(given, device):
    table = registry.parse('[plugins.trt]\ndevice = { forward = "cuda:3" }\n', FILE)
    own = resolved({"devices": {"trt": given}}, table).devices["trt"]
    assert own.get("forward", own.get("*")) == Device.parse(device)


def test_pins_and_limits_are_combined():
    text = '[plugins.cpu]\nmin_nodes = 2\nmax_partitions = 3\n[[pin]]\nop = "b"\nplugin = "cpu"\n'
    table = registry.parse(text, FILE)
    pin = {"op": "a", "plugin": "cpu"}
    known = resolved({"pins": [pin], "limits": {"cpu": {"min_nodes": 5}}}, table)
    assert [own.op for own in known.pins] == ["a", "b"]
    assert known.limits == {"cpu": Limits(min_nodes=5, max_partitions=3)}


def test_a_registry_has_the_devices_and_limits_of_its_plugins():
    table = registry.parse('[plugins.cpu]\ndevice = "cpu"\nmin_nodes = 2\n', FILE)
    assert table.devices == {"cpu": {"*": Device("cpu")}}
    assert table.limits == {"cpu": Limits(min_nodes=2)}
