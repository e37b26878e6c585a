"""The documents: every hook is in the README, and every example in them runs."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import etdev
from etdev import hookspecs
from etdev.registry import plugin, selection

README = Path(__file__).parents[2] / "README.md"


class Net(nn.Module):
    """A module with something for every example: a product, a sum, a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x):
        return torch.mm(x, self.weight) + 1


def hooks():
    found = [function for function in vars(hookspecs).values() if inspect.isfunction(function)]
    return {function.__name__: function for function in found if hasattr(function, "etdev_spec")}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_plugin_host_knows_every_hook():
    assert set(plugin.HOOKS) == set(hooks())


@pytest.mark.parametrize("name", hooks())
def test_the_readme_has_a_row_for_every_hook(name):
    assert f"| `{name}` |" in README.read_text()


@pytest.mark.parametrize("name", hooks())
def test_a_hook_says_when_and_what_and_shows_an_example(name):
    text = inspect.getdoc(hooks()[name])
    assert "Called" in text
    assert "Returns:" in text
    arguments = inspect.signature(hooks()[name]).parameters
    assert all(f"    {argument}: " in text for argument in arguments)


@pytest.mark.parametrize("name", hooks())
def test_the_example_of_a_hook_runs(name):
    example = inspect.cleandoc(inspect.getdoc(hooks()[name]).split("Example:\n")[1])
    own = {"claim_nodes": "Claim('XnnpackBackend', [Group([n for n in program.graph.nodes if n.op"
           " == 'call_function'])], device_types=('cpu', 'cuda'))"}  # fmt: skip
    body = [f"    {line}" for line in example.splitlines()]
    code = ["class Example:", "    name = 'example'", *body]
    if name != "claim_nodes":
        code += ["    @hookimpl", "    def claim_nodes(self, program):"]
        code += ["        return " + own["claim_nodes"]]
    code = [re.sub(r"def (\w+)\((?!self)", r"def \1(self, ", line) for line in code]
    space = {key: getattr(etdev, key) for key in etdev.__all__}
    exec("\n".join(code), space)
    import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

    plan = etdev.Lowerer([space["Example"]()]).plan(Net(), (torch.randn(2, 4),))
    (entry,) = [e for e in plan["forward"].ledger if "mm" in e.op or "linear" in e.op]
    assert name in ("claim_nodes", *selection.from_object(space["Example"]()).hooks)
    assert entry.owner in ("example", None)


def test_the_plugin_of_the_readme_takes_the_additions():
    (code,) = [block for block in blocks("python") if "class Adder" in block]
    assert len(code.strip().splitlines()) <= 23
    space: dict = {}
    exec(code, space)
    lowered = space["lowerer"].lower(Net(), (torch.randn(2, 4),))
    assert lowered.plan["forward"].owner("aten_add_tensor") == "adder"
    assert lowered.to_executorch().buffer


def test_the_snippets_of_the_readme_are_python():
    assert all(ast.parse(block) for block in blocks("python"))


def test_the_registry_of_the_readme_is_valid():
    from etdev import registry

    (text,) = [block for block in blocks("toml") if "unlisted" in block]
    assert registry.parse(text, README).names == ("trt", "cpu", "vulkan")


def test_the_commands_of_the_readme_exist():
    from etdev.cli.main import COMMANDS

    (text,) = [block for block in blocks("sh") if "etdev plugins" in block]
    named = {line.split()[1] for line in text.splitlines() if line.startswith("etdev ")}
    assert named == set(COMMANDS)
