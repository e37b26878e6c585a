"""Answers: what a plugin may return from a hook, and what is said of anything else."""

import pytest
import torch
from attrs import define, frozen
from executorch.exir import EdgeCompileConfig, to_edge

from etdev import Assumed, Claim, Device, Group, KeepWhole, Refusal, hookimpl
from etdev.errors import ClaimError, EtdevError, PluginError
from etdev.graph.method import MethodGraph
from etdev.planner.claim_checks import check_claims
from etdev.registry import answers
from etdev.registry.plugin import HOOKS
from etdev.registry.selection import from_object
from etdev.schema.device import CPU, Probe
from etdev.schema.partition import Partition
from etdev.schema.reasons import RESERVED
from etdev.schema.tensors import Constant

CACHE = Constant("b_cache", "cache", "buffer", "float32", (4,), 16, update="add")
CONFIG = EdgeCompileConfig()
NO_MUL = Refusal("aten_mul_tensor", "op")
SCALE = Constant("p_scale", "scale", "parameter", "float32", (4,), 16)
PARTITION = Partition("a_0", "forward", "a", "B", ("mul",), constants=(CACHE, SCALE))


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.scale + 1


@pytest.fixture(scope="module")
def graph():
    program = torch.export.export(Scale(), (torch.ones(4),))
    return MethodGraph(to_edge(program).exported_program(), "forward")


@define(eq=False)
class Says:
    """Answers every hook with one value, or raises it."""

    answer: object
    name: str = "a"

    def say(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


for _hook in HOOKS:
    setattr(Says, _hook, hookimpl(lambda self: self.say()))


def says(answer):
    return from_object(Says(answer))


def claims(plugin, graph):
    """Ask for claims, and check them as the planner does."""
    given = answers.claim_nodes(plugin, graph, {}, {}, CONFIG)
    check_claims(plugin, graph, given)
    return given


def ask(hook, answer, graph):
    """Ask a plugin one hook, with arguments that fit."""
    plugin, program = says(answer), graph.program
    return {
        "prepare": lambda: answers.prepare(plugin, program, "forward"),
        "keep_whole": lambda: answers.keep_whole(plugin, program, "forward"),
        "claim_nodes": lambda: claims(plugin, graph),
        "decompose": lambda: answers.decompose([plugin], graph.nodes[0], CONFIG),
        "claim_constants": lambda: answers.claim_constants(plugin, program, PARTITION),
        "resolve_device": lambda: answers.resolve_device(plugin, program, PARTITION),
        "device_caveat": lambda: answers.device_caveat(plugin, program, PARTITION),
        "annotate": lambda: answers.annotate(plugin, PARTITION),
        "compile_context": lambda: answers.compile_context(plugin, CPU).__enter__(),
        "payload_device": lambda: answers.payload_device([plugin], "B", b""),
        "payload_data": lambda: answers.payload_data([plugin], "B", b""),
        "runner_for": lambda: answers.runner_for([plugin], "B"),
        "rounds_to": lambda: answers.rounds_to([plugin], "B"),
        "probe": lambda: answers.probe(plugin),
    }[hook]()


@pytest.mark.parametrize(
    ("hook", "answer", "value"),
    [
        ("keep_whole", KeepWhole(()), KeepWhole(())),
        ("decompose", None, None),
        ("decompose", torch.sin, torch.sin),
        ("claim_nodes", None, ()),
        ("claim_nodes", [], ()),
        ("claim_nodes", Claim("B", []), (Claim("B", []),)),
        ("claim_nodes", [Claim("B", [])], (Claim("B", []),)),
        ("claim_constants", None, frozenset()),
        ("claim_constants", ["p_scale"], {"p_scale"}),
        ("claim_constants", [SCALE], {"p_scale"}),
        ("resolve_device", None, None),
        ("resolve_device", Device("cuda", 1), Device("cuda", 1)),
        ("resolve_device", Assumed(CPU, "why"), Assumed(CPU, "why")),
        ("device_caveat", None, ""),
        ("device_caveat", "slow", "slow"),
        ("annotate", None, {}),
        ("annotate", {"mul": {"key": 1}}, {"mul": {"key": 1}}),
        ("payload_device", None, None),
        ("payload_device", CPU, CPU),
        ("payload_data", None, ()),
        ("payload_data", ["a", "b"], ("a", "b")),
        ("runner_for", None, None),
        ("runner_for", "own", "own"),
        ("rounds_to", None, None),
        ("rounds_to", "bfloat16", "bfloat16"),
        ("probe", None, Probe()),
        ("probe", Probe(["cuda:1"]), Probe(["cuda:1"])),
    ],
)
def test_an_answer_comes_back_in_one_form(hook, answer, value, graph):
    assert ask(hook, answer, graph) == value


def test_without_a_word_from_prepare_the_program_stays(graph):
    assert ask("prepare", None, graph) is graph.program


@pytest.mark.parametrize(
    ("hook", "answer", "message"),
    [
        ("prepare", 1, "prepare returned 1; return an ExportedProgram"),
        ("keep_whole", [], "keep_whole returned []; return KeepWhole"),
        ("decompose", 1, "decompose returned 1; return a function, or None"),
        ("claim_nodes", "mul", "claim_nodes returned 'mul'; return a Claim or several"),
        ("claim_nodes", [1], "claim_nodes returned [1]; return a Claim or several"),
        (
            "claim_nodes",
            Claim("B", [Group(["mul"])]),
            "claims 'mul', which is not a computing node of method 'forward'; name nodes of the "
            "program that claim_nodes was given, no inputs or outputs",
        ),
        (
            "claim_nodes",
            ("B", [Group(["aten_mul_tensor"])]),
            "claim_nodes returned ('B', [Group(nodes=('aten_mul_tensor',), why='', whole=False)]); "
            "return a Claim or several",
        ),
        (
            "claim_nodes",
            Claim("B", [], [Refusal("x", "op")]),
            "refuses 'x', which is not a computing node of method 'forward'; name nodes of the "
            "program that claim_nodes was given, no inputs or outputs",
        ),
        (
            "claim_nodes",
            [Claim("B", [Group(["aten_mul_tensor"])]), Claim("C", [], [NO_MUL])],
            "claims 'aten_mul_tensor' in method 'forward' and refuses it with 'op'; "
            "do one of the two",
        ),
        (
            "claim_nodes",
            [Claim("C", [], [NO_MUL]), Claim("B", [Group(["aten_mul_tensor"])])],
            "claims 'aten_mul_tensor' in method 'forward' and refuses it with 'op'; "
            "do one of the two",
        ),
        (
            "claim_constants",
            "p_scale",
            "claim_constants returned 'p_scale'; return a list of constants",
        ),
        (
            "claim_constants",
            ["x"],
            "claims the constant 'x', which forward/a_0 does not read; "
            "choose from partition.constants",
        ),
        (
            "claim_constants",
            [CACHE],
            "would freeze the buffer 'cache' in forward/a_0, but the method writes to it; "
            "leave out constants that are mutated",
        ),
        *[
            (
                "resolve_device",
                answer,
                f"resolve_device returned {answer!r} for forward/a_0; "
                'return a Device, such as Device("cuda", 0)',
            )
            for answer in ("cuda:0", 0, False, [Device("cuda")])
        ],
        (
            "device_caveat",
            1,
            "device_caveat returned 1 for forward/a_0; return a line of text, or None",
        ),
        (
            "annotate",
            {"mul": 1},
            "annotate returned {'mul': 1} for forward/a_0; "
            'return a mapping, such as {"aten_add_tensor": {"key": 1}}',
        ),
        (
            "annotate",
            {"add": {}},
            "annotate names 'add', which is not in forward/a_0; "
            "name its nodes, inputs or constants",
        ),
        ("compile_context", 1, "compile_context returned 1; return a context manager"),
        ("payload_device", "cpu", "payload_device returned 'cpu'; return a Device, or None"),
        ("payload_data", "key", "payload_data returned 'key'; return a list of keys"),
        ("payload_data", [b"key"], "payload_data returned [b'key']; return a list of keys"),
        ("runner_for", 1, "runner_for returned 1; return the name of a runner, or None"),
        (
            "rounds_to",
            "float32",
            "rounds_to returned 'float32'; return bfloat16 or float16, or None",
        ),
        ("probe", 1, 'probe returned 1; return a Probe, such as Probe(["cpu"])'),
    ],
)
def test_another_answer_is_refused_with_the_plugin_the_value_and_the_cure(
    hook, answer, message, graph
):
    with pytest.raises(PluginError) as caught:
        ask(hook, answer, graph)
    assert str(caught.value) == f"a: {message}"


@pytest.mark.parametrize("code", RESERVED)
def test_a_reason_code_of_the_host_is_refused(code, graph):
    node = graph.nodes[0].name
    with pytest.raises(ClaimError) as caught:
        ask("claim_nodes", Claim("B", [], [Refusal(node, code)]), graph)
    assert str(caught.value) == (
        f"a: refuses {node!r} with the code {code!r}, which is the host's; "
        f"use a code of its own, such as op or dtype; reserved are {', '.join(RESERVED)}"
    )


@pytest.mark.parametrize(
    ("hook", "place"),
    [
        *[(hook, " for method 'forward'") for hook in ("prepare", "keep_whole", "claim_nodes")],
        *[(hook, " for method 'forward'") for hook in ("claim_constants", "resolve_device")],
        *[(hook, " for method 'forward'") for hook in ("device_caveat", "annotate")],
        *[
            (hook, "")
            for hook in (
                "compile_context",
                "payload_device",
                "payload_data",
                "runner_for",
                "rounds_to",
            )
        ],
        ("probe", ""),
    ],
)
@pytest.mark.parametrize("kind", [KeyError, SystemExit])
def test_a_hook_that_raises_is_named_with_plugin_hook_and_method(hook, place, kind, graph):
    error = kind("aten.add")
    with pytest.raises(PluginError) as caught:
        ask(hook, error, graph)
    text = "'aten.add'" if kind is KeyError else "aten.add"
    assert str(caught.value) == (
        f"a: {hook} raised {kind.__name__}: {text}{place}; the cause is chained below"
    )
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("kind", [ClaimError, EtdevError])
def test_an_error_of_ours_that_a_plugin_raises_passes_as_it_is(kind, graph):
    error = kind("trt", "a KV cache is frozen", "leave it outside")
    with pytest.raises(kind) as caught:
        ask("probe", error, graph)
    assert caught.value is error


def test_a_wrong_value_in_a_claim_is_one_line_with_the_plugin(graph):
    @frozen
    class Hasty:
        @hookimpl
        def claim_nodes(self):
            return Claim("B", ["add"])

    with pytest.raises(PluginError) as caught:
        answers.claim_nodes(from_object(Hasty), graph, {}, {}, CONFIG)
    assert str(caught.value).startswith(
        "Hasty: claim_nodes for method 'forward': 'groups' must be "
        "<class 'etdev.schema.claims.Group'> (got 'add' that is a <class 'str'>)"
    )


def test_a_plugin_without_a_hook_says_nothing(graph):
    class Bare:
        name = "a"

        @hookimpl
        def probe(self): ...

    plugin = from_object(Bare())
    assert answers.claim_nodes(plugin, graph, {}, {}, CONFIG) == ()
    assert answers.resolve_device(plugin, graph.program, PARTITION) is None
    assert answers.prepare(plugin, graph.program, "forward") is graph.program


def test_the_first_plugin_that_knows_a_payload_is_believed():
    plugins = [says(None), says(Device("cuda", 1)), says(CPU)]
    assert answers.payload_device(plugins, "B", b"") == Device("cuda", 1)


def test_an_annotation_cant_overwrite_what_the_host_writes(graph):
    for key in ("val", "spec", "delegation_tag"):
        with pytest.raises(PluginError) as caught:
            ask("annotate", {"mul": {"mine": 1, key: None}}, graph)
        assert str(caught.value) == (
            f"a: annotate overwrites meta[{key!r}] of 'mul' in forward/a_0; "
            "the host writes it; use a key of its own"
        )


@pytest.mark.parametrize("answer", [True, 1, 2.5])
@pytest.mark.parametrize("hook", ["claim_nodes", "claim_constants", "payload_data"])
def test_what_cant_be_listed_is_refused(hook, answer, graph):
    with pytest.raises(PluginError, match=rf"^a: {hook} returned {answer!r}( for .*)?; return "):
        ask(hook, answer, graph)


def test_a_node_in_two_claims_is_no_contradiction(graph):
    (node,) = [node.name for node in graph.nodes if "mul" in node.name]
    claims = [Claim("B", [Group([node])]), Claim("C", [Group([node])])]
    assert len(ask("claim_nodes", claims, graph)) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda text: Refusal("x", text),
        lambda text: Claim(text, []),
        lambda text: Claim("B", [], compiler=text),
        lambda text: Claim("B", [], compile_specs={text: b""}),
    ],
)
@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "\ud800"])
def test_a_name_is_one_line_that_can_be_shown(make, text):
    with pytest.raises(ClaimError, match="write it in one line"):
        make(text)


def test_a_caveat_is_one_line(graph):
    with pytest.raises(PluginError, match="return a line of text, or None"):
        ask("device_caveat", "a\nb", graph)
