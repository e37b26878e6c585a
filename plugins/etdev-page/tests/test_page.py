"""The page without a browser: its data, its layout, and that nothing in it is taken for HTML."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from html.parser import HTMLParser

import pytest
from attrs import evolve
from etdev_page import layers as laying
from etdev_page.document import document
from etdev_page.graph import Graph
from etdev_page.layers import layers
from etdev_page.modules import tree, walk
from etdev_page.page import Page
from models import plans
from models.nets import mlp
from shell import MLP, fails, invoke, succeeds

from etdev import EtdevError, Lowerer, Plan
from etdev.schema.ledger import Ledger
from etdev.schema.profile import Cost, Profile

pytest.importorskip("fast_sugiyama", reason="needs Python 3.11")


class Reader(HTMLParser):
    """Reads a page: its tags, and the text of each script and of the title."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: dict[str, str] = {}
        self.links: list[str] = []
        self._within = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        self._within = given.get("id", tag) if tag in ("script", "title") else ""
        self.links += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_data(self, data):
        if self._within:
            self.texts[self._within] = self.texts.get(self._within, "") + data

    def handle_endtag(self, tag):
        self._within = ""


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def shown(page: Page) -> dict:
    return json.loads(read(page.html()).texts["data"])


@pytest.fixture(scope="module")
def bert() -> Plan:
    from models.nets import bert

    return Lowerer(["cpu"]).plan(*bert(1))


def every_plan(bert):
    return [bert, plans.chain(30), plans.hostile(), Plan(())]


def test_every_node_is_on_the_page_with_what_was_said_of_it(bert):
    data = shown(Page(bert))
    (method,) = data["methods"]
    texts = data["texts"]
    for row, entry in zip(method["nodes"], bert["forward"].ledger, strict=True):
        assert [row[0], texts[row[1]], texts[row[3]], texts[row[5]]] == [
            entry.node, entry.op, entry.module, entry.holder,
        ]  # fmt: skip
        assert [texts[number] for number in row[7:]] == [
            text for v in entry.verdicts for text in (v.plugin, v.code, v.text)
        ]
    members = [index for partition in method["partitions"] for index in partition["nodes"]]
    alone = [vertex[1] for vertex in method["vertices"] if vertex[0] == "n"]
    assert sorted(members + alone) == list(range(len(method["nodes"])))


def test_edges_are_what_the_program_reads(bert):
    """Against the program itself: who reads a value of another partition or portable node."""
    decision = Lowerer(["cpu"]).decide(*mlp())
    graph = Graph(decision.plan["forward"])
    names = [vertex.name for vertex in graph.vertices]
    assert {(names[edge.source], names[edge.target]) for edge in graph.edges} == {
        ("input_1", "cpu_0"),
        ("cpu_0", "aten_native_layer_norm_default"),
        ("aten_native_layer_norm_default", "cpu_1"),
    }
    nodes = decision.programs["forward"].graph.nodes
    named = {node.name: node for node in nodes}
    for entry in decision.plan["forward"].ledger:
        read_by_it = {node.name for node in named[entry.node].all_input_nodes}
        assert set(entry.inputs) == {name for name in read_by_it if not name.startswith("p_")}


def test_what_is_copied_is_on_its_edge():
    graph = Graph(plans.chain(3)["forward"])
    names = [vertex.name for vertex in graph.vertices]
    copied = {
        (names[e.source], names[e.target]): [str(c.target) for c in e.copies] for e in graph.edges
    }
    assert copied["x", "gpu_0"] == ["cuda:1"]
    assert copied["gpu_0", "softmax_0"] == ["cpu"]
    assert copied["softmax_0", "gpu_1"] == ["cuda:1"]


def test_modules_hold_each_vertex_once_and_depend_on_each_other_without_cycles(bert):
    for plan in every_plan(bert):
        for method in plan.methods:
            graph = Graph(method)
            groups = walk(tree(graph))
            children = [c for group in groups for c in group.children]
            alone = [child for child in children if isinstance(child, int)]
            assert sorted(alone) == list(range(len(graph.vertices)))
            for group in groups:
                for child in group.children:
                    if not isinstance(child, int):
                        assert all(
                            graph.vertices[v].module.startswith(child.path) for v in child.vertices
                        )


def test_rows_have_each_child_once_and_lines_run_down_through_their_bends(bert):
    for plan in every_plan(bert):
        for method in document(plan, {})["methods"]:
            for group in method["groups"]:
                rows = {item: row for row, items in enumerate(group["rows"]) for item in items}
                assert sum(map(len, group["rows"])) == len(rows)
                count = len(group["children"])
                bends = [bend for way in group["ways"] for bend in way[2:]]
                assert sorted(rows) == list(range(count + len(bends)))
                assert sorted(bends) == list(range(count, count + len(bends)))
                for source, target, *way in group["ways"]:
                    passed = [rows[item] for item in (source, *way, target)]
                    assert passed == sorted(set(passed))
                    if way:
                        assert passed == list(range(passed[0], passed[-1] + 1))


def test_a_module_that_is_left_and_entered_again_is_shown_in_parts():
    """As one box it would read of the partition and be read by it."""
    plan = plans.chain(2)
    (method,) = plan.methods
    moved = {"softmax_0": "head", "softmax_1": "head"}
    entries = [evolve(e, module=moved.get(e.node, e.module)) for e in method.ledger]
    twice = [*entries, evolve(entries[-1], node="again", inputs=("softmax_1",))]
    first = [evolve(entries[6], node="first", inputs=("softmax_0",)), *twice]
    graph = Graph(evolve(method, ledger=Ledger((*first,))))
    heads = [(g.path, g.part, g.parts) for g in walk(tree(graph)) if g.path == "head"]
    assert heads == [("head", 1, 2), ("head", 2, 2)]


def test_a_long_way_is_straight_and_a_short_one_bends():
    pairs = [(i, i + 1) for i in range(60)] + [(0, 3), (0, 60)]
    ways = dict(layers(61, pairs).ways)
    assert len(ways[0, 3]) == 2
    assert ways[0, 60] == ()


def test_a_tangle_is_laid_out_in_seconds():
    """As prettily as the library can, 5,000 children that read of each other took a minute."""
    chosen = random.Random(0)
    edges = {(chosen.randrange(max(0, i - 60), i), i) for i in range(1, 5000) for _ in range(2)}
    pairs = sorted(edges | {(5, i) for i in range(11, 5000, 3)})
    start = time.process_time()
    laid = layers(5000, pairs)
    assert time.process_time() - start < 15
    assert sum(map(len, laid.rows)) <= 10 * 5000
    assert [pair for pair, _ in laid.ways] == pairs


def test_the_same_plan_is_the_same_bytes_in_every_process(tmp_path):
    code = (
        "from models import plans; from etdev_page.page import Page; import hashlib;"
        "print(hashlib.sha256(Page(plans.chain(20)).html().encode()).hexdigest())"
    )
    path = os.pathsep.join([str(p) for p in sys.path if p])
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1
    plan = plans.chain(3)
    assert Page(plan).html() == Page(Plan.from_json(plan.to_json())).html()


def test_hostile_names_are_text():
    page = Page(plans.hostile(), title=plans.HOSTILE, note=plans.HOSTILE)
    reader, innocent = read(page.html()), read(Page(plans.chain(2)).html())
    assert reader.tags == innocent.tags
    data = json.loads(reader.texts["data"])
    assert data["methods"][0]["name"] == data["title"] == data["note"] == plans.HOSTILE
    assert plans.HOSTILE in data["texts"]
    assert reader.texts["title"] == f"{plans.HOSTILE} · etdev"


def test_the_page_loads_nothing():
    text = Page(plans.chain(2)).html()
    assert read(text).links == []
    addresses = set(re.findall(r"\w+://[^\s\"')]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert "url(" not in text.replace("url(#tip)", "")
    assert "default-src 'none'" in text


def test_a_plan_that_says_impossible_things_is_drawn_all_the_same():
    """Cycles, unknown names, modules a thousand deep: only a plan written by hand has them."""
    plan = plans.chain(3)
    (method,) = plan.methods
    entries = [evolve(e, inputs=("softmax_2", "nobody", e.node)) for e in method.ledger]
    entries[-1] = evolve(entries[-1], module=".".join(["m"] * 3000))
    (data,) = shown(Page(evolve(plan, methods=(evolve(method, ledger=Ledger((*entries,))),))))[
        "methods"
    ]
    assert len(data["nodes"]) == len(entries)


def test_a_profile_gives_times_to_boxes_and_a_chart():
    costs = (
        Cost("gpu_0", "delegate", 1, 2.5, 0.9, "gpu"),
        Cost("aten::_softmax.out", "kernel", 2, 0.25),
    )
    profile = Profile("forward", costs, 3, {"gpu_0": 2.5, "softmax_1": 0.125})
    data = shown(Page(plans.chain(2), profile=profile, stages={"edge": 1.25}))
    (method,) = data["methods"]
    assert [partition["ms"] for partition in method["partitions"]] == [2.5, None]
    assert sorted(v[3] for v in method["vertices"] if v[3] is not None) == [0.125]
    assert data["run"] == ["forward", 2.75]
    charts = {chart["title"]: chart["bars"] for chart in data["charts"]}
    assert charts["Time of a run"][0] == ["gpu_0", 2.5, "gpu", "gpu_0"]
    assert charts["Time of each stage"] == [["edge", 1.25, "", ""]]
    assert charts["Weights by device"] == [["in delegates on cuda:1", 512, "", ""]]
    assert charts["Copied between devices at every run"] == [
        ["cpu to cuda:1", 128, "", ""],
        ["cuda:1 to cpu", 128, "", ""],
    ]


def test_the_commands_write_pages(mlp_lowered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Lowerer, "plan", lambda *_: mlp_lowered.plan)
    mlp_lowered.save("with.pte", with_ledger=True)
    mlp_lowered.save("without.pte")
    succeeds(f"plan {MLP} --html plan.html")
    succeeds(f"lower {MLP} -o net.pte --plugin cpu --html lower.html")
    succeeds("inspect with.pte --html with.html")
    succeeds("inspect without.pte --html without.html")
    pages = {
        name: json.loads(read((tmp_path / f"{name}.html").read_text()).texts["data"])
        for name in ("plan", "lower", "with", "without")
    }
    assert pages["plan"]["methods"] == pages["with"]["methods"]
    assert pages["plan"]["methods"] == pages["lower"]["methods"]
    (stages,) = [c for c in pages["lower"]["charts"] if c["title"] == "Time of each stage"]
    assert {"export", "edge", "plan", "compile", "emit"} <= {bar[0] for bar in stages["bars"]}
    assert {chart["title"] for chart in pages["with"]["charts"]} == {
        "What the file holds", "Planned memory by device",
    }  # fmt: skip
    assert pages["without"]["note"].startswith("The file carries no ledger")
    (method,) = pages["without"]["methods"]
    boxes = [(v[0], v[1]) for v in method["vertices"]]
    assert boxes == [("i", "input 0"), ("p", 0), ("n", 0), ("p", 1)]
    assert [edge[:2] for edge in method["edges"]] == [[0, 1], [1, 2], [2, 3]]
    assert [p["name"] for p in method["partitions"]] == ["XnnpackBackend #0", "XnnpackBackend #1"]


def test_what_can_not_be_written_is_told(mlp_lowered, mlp_pte, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = fails(f"inspect {mlp_pte} --html nowhere/plan.html")
    assert error == "nowhere/plan.html: there is no folder 'nowhere'; create it first"


def test_a_missing_library_is_told_before_anything_is_done(mlp_pte, monkeypatch):
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    with pytest.raises(EtdevError) as caught:
        laying.require_library()
    old = sys.version_info < (3, 11)
    cure = "use Python 3.11 or later" if old else "pip install 'etdev[page]'"
    message = f"html: needs fast-sugiyama, which is not installed; {cure}"
    assert str(caught.value) == message
    assert fails(f"inspect {mlp_pte} --html page.html") == message


def test_a_page_of_a_run_needs_a_profile(mlp_pte):
    for option in ("--html page.html", "--view node-data=folder"):
        done = invoke(f"run {mlp_pte} {option}")
        assert done.exit_code == 2
        assert "--html and --view need --profile" in done.stderr
