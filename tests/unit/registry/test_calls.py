"""Calls: a hook that changes the program is refused, and whatever it raises names the plugin."""

import copy
import random
import re
from asyncio import CancelledError

import pytest
import torch
from executorch.exir import EdgeCompileConfig, to_edge
from support.models.small import PAIR, AddMul
from torch import nn

from etdev import Claim, Device, Group, KeepWhole, Lowerer, hookimpl
from etdev.errors import ClaimError, EtdevError, PluginError
from etdev.graph.method import MethodGraph
from etdev.registry import answers
from etdev.registry.selection import from_object
from etdev.schema.device import Probe

pytestmark = pytest.mark.usefixtures("quick_conversion")

CONFIG = EdgeCompileConfig()


class Net(nn.Module):
    """Weights, a buffer that is written, and a branch."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        self.steps.add_(1)
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (self.linear(x),))


@pytest.fixture(scope="module")
def program():
    exported = torch.export.export(Net(), (torch.ones(2, 4),))
    return to_edge(exported).exported_program()


@pytest.fixture
def graph(program):
    return MethodGraph(copy.deepcopy(program), "forward")


def ask(graph, act):
    """Ask a plugin that acts on the program and claims nothing."""

    class Plugin:
        name = "a"

        @hookimpl
        def claim_nodes(self, program):
            act(program)

    return answers.claim_nodes(from_object(Plugin()), graph, {}, {}, CONFIG)


def ask_all(plugin, graph):
    """Ask a plugin several hooks, of which it has one."""
    answers.claim_nodes(plugin, graph, {}, {}, CONFIG)
    answers.keep_whole(plugin, graph.program, "forward")
    answers.probe(plugin)


def node(program):
    """A computing node."""
    calls = (n for n in program.graph.nodes if n.op == "call_function")
    return next(n for n in calls if "add" in n.name or "relu" in n.name)


def replace_argument(program):
    first = node(program)
    first.args = (*first.args[:-1], next(iter(program.graph.nodes)))


def rewire_branch(program):
    inner = node(program.graph_module.submodule_0)
    inner.args = (inner.args[0], 3)


def rename_output(program):
    program.graph_signature.output_specs[-1].arg.name = "other"


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda p: p.graph.call_function(torch.relu, (node(p),)), "the graph"),
        (replace_argument, "the op or the arguments of 'aten_add_tensor'"),
        (
            lambda p: setattr(node(p), "target", torch.add),
            "the op or the arguments of 'aten_add_tensor'",
        ),
        (lambda p: node(p).meta.update(tag=1), "meta['tag'] of 'aten_add_tensor'"),
        (lambda p: node(p).meta.update(val=None), "meta['val'] of 'aten_add_tensor'"),
        (lambda p: node(p).meta.pop("val"), "meta['val'] of 'aten_add_tensor'"),
        (rewire_branch, "the op or the arguments of 'aten_add_tensor'"),
        (rename_output, "the signature"),
        (lambda p: p.state_dict.pop("steps"), "the state 'steps'"),
    ],
)
def test_a_program_that_was_changed_is_refused(graph, act, what):
    with pytest.raises(ClaimError) as caught:
        ask(graph, act)
    assert str(caught.value) == (
        f"a: claim_nodes changed {what} of method 'forward'; look at the program, don't change it"
    )


def zero(tensor):
    with torch.no_grad():
        tensor.zero_()


@pytest.mark.parametrize(
    "write",
    [
        zero,
        lambda tensor: tensor.data.zero_(),
        lambda tensor: tensor.detach().numpy().fill(3),
        lambda tensor: tensor.untyped_storage().fill_(7),
    ],
)
@pytest.mark.parametrize("shape", [(4,), (64, 64), (64, 4, 3, 3)])
def test_weights_that_were_written_are_refused(shape, write):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            # Not contiguous, and a part of a larger tensor.
            self.weight = nn.Parameter(torch.rand(2, *shape)[1].transpose(0, -1))

        def forward(self, x):
            return x * self.weight

    program = torch.export.export(Scale(), (torch.ones(shape).transpose(0, -1),))
    graph = MethodGraph(to_edge(program).exported_program(), "forward")
    with pytest.raises(ClaimError) as caught:
        ask(graph, lambda program: write(program.state_dict["weight"]))
    assert str(caught.value) == (
        "a: claim_nodes changed the values of 'weight' of method 'forward'; the model has lost "
        "them, load it again; and change a clone of them in the hook"
    )


def test_what_is_only_read_is_no_change(graph):
    def read(program):
        copy.deepcopy(program)
        program.module()
        str(program)
        [value.sum() for value in program.state_dict.values()]
        program.graph.erase_node(program.graph.call_function(torch.relu, (node(program),)))
        first = node(program)
        before, meta = first.args, first.meta["val"]
        first.args = before[::-1]
        first.args = before
        del first.meta["val"]
        first.meta["val"] = meta

    assert ask(graph, read) == ()


@pytest.mark.parametrize("given", ["taken", "partitions"])
def test_the_tables_of_the_host_cant_be_written(graph, given):
    class Plugin:
        name = "a"

        @hookimpl
        def claim_nodes(self, taken, partitions):
            {"taken": taken, "partitions": partitions}[given]["x"] = "a"

    with pytest.raises(PluginError, match="a: claim_nodes raised TypeError: 'mappingproxy'"):
        answers.claim_nodes(from_object(Plugin()), graph, {}, {}, CONFIG)


@pytest.mark.parametrize("hook", ["prepare", "keep_whole"])
def test_the_exported_program_of_the_caller_stays(hook):
    class Plugin:
        name = "a"

    def act(self, program):
        zero(program.state_dict["linear.weight"])

    act.__name__ = hook
    setattr(Plugin, hook, hookimpl(act))
    cure = "the model has lost them, load it again; and change a clone of them in the hook"
    with pytest.raises(PluginError) as caught:
        Lowerer([Plugin()]).plan(Net(), (torch.ones(2, 4),))
    what = "the values of 'linear.weight' of method 'forward'"
    assert str(caught.value) == f"a: {hook} changed {what}; {cure}"


def test_prepare_that_changes_the_graph_in_place_is_refused():
    class Plugin:
        name = "a"

        @hookimpl
        def prepare(self, program):
            first = node(program)
            first.replace_all_uses_with(first.args[0])
            program.graph.erase_node(first)
            return program

    with pytest.raises(PluginError) as caught:
        Lowerer([Plugin()]).plan(nn.Sequential(nn.ReLU(), nn.ReLU()), (torch.ones(2, 4),))
    assert str(caught.value) == (
        "a: prepare changed the graph of method 'forward'; "
        "change a copy.deepcopy of the program and return that"
    )


def claim_adds(program):
    groups = [Group([n]) for n in program.graph.nodes if "add" in n.name]
    return Claim("XnnpackBackend", groups, merge=False)


@pytest.mark.parametrize("hook", ["claim_constants", "resolve_device", "device_caveat"])
def test_hooks_that_are_asked_for_each_partition_are_watched_together(hook):
    class Plugin:
        name = "a"

        @hookimpl
        def claim_nodes(self, program):
            return claim_adds(program)

    def act(self, program, partition):
        program.graph.output_node().meta["tag"] = 1

    setattr(Plugin, hook, hookimpl(act))
    with pytest.raises(PluginError) as caught:
        Lowerer([Plugin()]).plan(AddMul(), PAIR)
    assert str(caught.value) == (
        f"a: {hook} changed meta['tag'] of 'output' of method 'forward'; "
        "look at the program, don't change it"
    )


def test_a_check_of_keep_whole_that_changes_a_node_is_refused_and_the_node_put_back():
    def when(node):
        node.meta.clear()
        return True

    wish = KeepWhole([torch.ops.aten.add.Tensor], when)
    with pytest.raises(PluginError) as caught:
        Lowerer([hooked("keep_whole", lambda self: wish)]).plan(AddMul(), PAIR)
    assert str(caught.value) == (
        "a: keep_whole's check of 'add' changed its meta in method 'forward'; "
        "look at the node, don't change it"
    )


def test_a_program_that_torch_refuses_is_no_answer_to_prepare():
    def prepare(self, program):
        changed = copy.deepcopy(program)
        output = changed.graph.output_node()
        output.args = (output.args[0] * 2,)
        return changed

    with pytest.raises(PluginError, match="a: prepare returned an invalid program"):
        Lowerer([hooked("prepare", prepare)]).plan(AddMul(), PAIR)


class Unlike(BaseException):
    """Not an Exception, and nothing that ends a process."""


@pytest.mark.parametrize("error", [GeneratorExit("x"), Unlike("x"), CancelledError("x")])
def test_whatever_a_hook_raises_is_the_plugins(graph, error):
    def act(program):
        raise error

    name = type(error).__name__
    with pytest.raises(PluginError, match=f"a: claim_nodes raised {name}: x for method 'forward'"):
        ask(graph, act)


@pytest.mark.parametrize(
    ("answer", "text"),
    [("x" * 1_000_000, "'" + "x" * 399 + " ..."), ("a\nb", "'a\\nb'")],
)
def test_an_answer_of_another_kind_is_shown_in_a_line(graph, answer, text):
    plugin = from_object(Returns(answer))
    with pytest.raises(PluginError) as caught:
        answers.keep_whole(plugin, graph.program, "forward")
    assert str(caught.value) == f"a: keep_whole returned {text}; return KeepWhole"


def test_an_answer_that_cant_show_itself_is_named_by_its_class(graph):
    class Silent:
        def __repr__(self):
            raise ValueError

    with pytest.raises(PluginError, match="returned an object of Silent; return KeepWhole"):
        answers.keep_whole(from_object(Returns(Silent())), graph.program, "forward")


def hooked(name, body):
    """A plugin with one hook."""
    return type("Plugin", (), {name: hookimpl(body), "name": "a"})()


class Returns:
    """Answers keep_whole with something."""

    name = "a"

    def __init__(self, answer):
        self.answer = answer

    @hookimpl
    def keep_whole(self):
        return self.answer


def test_a_lowering_leaves_the_random_numbers_where_they_were():
    class Plugin:
        name = "a"

        @hookimpl
        def claim_nodes(self):
            random.random(), torch.rand(3)

    model = Net()
    before = (random.getstate(), torch.get_rng_state())
    Lowerer([Plugin()]).lower(model, (torch.ones(2, 4),))
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def raising(*items):
    yield from items
    raise KeyError("aten.add")


@pytest.mark.parametrize(
    ("hook", "answer", "message"),
    [
        ("claim_nodes", lambda: raising(Claim("B", [])), "claim_nodes raised KeyError: 'aten.add'"),
        ("claim_nodes", lambda: [Group([])], "claim_nodes for method 'forward': Length of"),
        ("claim_nodes", lambda: Device("cuda", 300), "claim_nodes for method 'forward': index 300"),
        ("claim_nodes", lambda: Device("gpu"), "claim_nodes for method 'forward': unknown type"),
        ("keep_whole", lambda: KeepWhole(["aten.mm"]), "keep_whole returned 'aten.mm'"),
        ("probe", lambda: Probe(["gpu"]), "probe: unknown type 'gpu'"),
        ("probe", lambda: Probe(["cuda:300"]), "probe: index 300"),
    ],
)
def test_what_was_raw_names_plugin_and_hook(graph, hook, answer, message):
    class Plugin:
        name = "a"

    setattr(Plugin, hook, hookimpl(lambda self: answer()))
    plugin = from_object(Plugin())
    with pytest.raises(EtdevError) as caught:
        ask_all(plugin, graph)
    assert str(caught.value).startswith(f"a: {message}")


def test_a_check_of_keep_whole_that_raises_is_named_with_its_node():
    class Plugin:
        name = "a"

        @hookimpl
        def keep_whole(self):
            return KeepWhole([torch.ops.aten.linear.default], lambda node: node.meta["absent"])

    with pytest.raises(PluginError) as caught:
        Lowerer([Plugin()]).plan(nn.Linear(4, 4), (torch.ones(2, 4),))
    assert re.sub(r"py:\d+", "py:LINE", str(caught.value)) == (
        "a: keep_whole's check of 'linear' raised KeyError: 'absent' in aten.linear.default "
        "at linear.py:LINE for method 'forward'; "
        "the cause is chained below"
    )
