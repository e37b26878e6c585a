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
from etdev_page.graph import graph_of
from etdev_page.layers import layers
from etdev_page.modules import groups_of
from etdev_page.page import Page
from support.models import plans
from support.models.nets import mlp
from support.shell import MLP, invoke, succeeds

from etdev import Lowerer, Plan
from etdev.schema.ledger import Ledger
from etdev.schema.profile import Cost, Profile


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
    from support.models.nets import bert

    return Lowerer(["cpu"]).plan(*bert(1))


def every_plan(bert):
    return [bert, plans.chain(30), plans.hostile(), Plan(())]


def test_every_node_is_on_the_page_once(bert):
    data = shown(Page(bert))
    assert Plan.from_json(json.dumps(data["plan"])) == bert
    boxes = [(box["kind"], box["name"]) for box in data["graphs"][0]["boxes"]]
    method = bert["forward"]
    assert [name for kind, name in boxes if kind == "node"] == list(method.fallback)
    assert {name for kind, name in boxes if kind == "partition"} == set(method.delegates)
    assert len(set(boxes)) == len(boxes)


def test_owners_and_ops_have_their_share_of_the_cost(bert):
    data, ledger = shown(Page(bert)), bert["forward"].ledger
    (drawn,) = data["graphs"]
    assert drawn["shares"] == ledger.shares()
    assert "of the FLOPs" in drawn["shares"]["cpu"]
    assert drawn["costs"].keys() == {entry.node for entry in ledger if entry.seconds}
    missed = data["explanation"]["missed"]
    times = [sum(drawn["costs"].get(node, 0) for node in one["nodes"]) for one in missed]
    assert times == sorted(times, reverse=True)
    assert all(one["share"] for one in missed)


def test_edges_are_what_the_program_reads(bert):
    """Against the program itself: who reads a value of another partition or portable node."""
    decision = Lowerer(["cpu"]).decide(*mlp())
    graph = graph_of(decision.plan["forward"])
    names = [vertex.name for vertex in graph.vertices]
    assert {(names[source], names[target]) for source, target in graph.edges} == {
        ("input_1", "cpu_0"),
        ("cpu_0", "aten_native_layer_norm_default"),
        ("aten_native_layer_norm_default", "cpu_1"),
    }
    nodes = decision.programs["forward"].graph.nodes
    named = {node.name: node for node in nodes}
    for entry in decision.plan["forward"].ledger:
        read_by_it = {node.name for node in named[entry.node].all_input_nodes}
        assert set(entry.inputs) == {name for name in read_by_it if not name.startswith("p_")}


def test_modules_hold_each_vertex_once_and_run_one_after_the_other(bert):
    for plan in every_plan(bert):
        for method in plan.methods:
            graph = graph_of(method)
            count = len(graph.vertices)
            groups = groups_of(graph)
            children = [child for group in groups for child in group.children]
            assert sorted(children) == [n for n in range(count + len(groups)) if n != count]
            for group in groups:
                assert list(group.vertices) == list(range(group.vertices[0], group.vertices[-1] + 1)
                                                    if group.vertices else ())  # fmt: skip
                paths = [graph.vertices[v].module for v in group.vertices]
                assert all(p.startswith(group.path) for p in paths if group.path)


def test_rows_have_each_child_once_and_lines_run_down_through_their_bends(bert):
    for plan in every_plan(bert):
        for drawn in shown(Page(plan))["graphs"]:
            for group in drawn["modules"]:
                rows = {item: row for row, items in enumerate(group["rows"]) for item in items}
                assert sum(map(len, group["rows"])) == len(rows)
                count = len(group["children"])
                drawn_lines = [line for line in group["lines"] if line["bends"] is not None]
                bends = [bend for line in drawn_lines for bend in line["bends"]]
                assert sorted(rows) == list(range(count + len(bends)))
                assert sorted(bends) == list(range(count, count + len(bends)))
                for line in drawn_lines:
                    way = [line["source"], *line["bends"], line["target"]]
                    passed = [rows[item] for item in way]
                    assert passed == list(range(passed[0], passed[-1] + 1))


def test_each_edge_is_on_one_line(bert):
    for plan in every_plan(bert):
        for drawn in shown(Page(plan))["graphs"]:
            lines = [
                edge for m in drawn["modules"] for line in m["lines"] for edge in line["edges"]
            ]
            assert sorted(lines) == list(range(len(drawn["edges"])))


def test_a_module_that_is_left_and_entered_again_is_shown_in_parts():
    """As one box it would read of the partition and be read by it."""
    plan = plans.chain(2)
    (method,) = plan.methods
    moved = {"softmax_0": "head", "softmax_1": "head"}
    entries = [evolve(e, module=moved.get(e.node, e.module)) for e in method.ledger]
    twice = [*entries, evolve(entries[-1], node="again", inputs=("softmax_1",))]
    first = [evolve(entries[6], node="first", inputs=("softmax_0",)), *twice]
    graph = graph_of(evolve(method, ledger=Ledger((*first,))))
    heads = [(g.path, g.part) for g in groups_of(graph) if g.path == "head"]
    assert heads == [("head", (1, 2)), ("head", (2, 2))]


def test_a_long_line_is_a_stub_and_a_short_one_bends():
    pairs = [(i, i + 1) for i in range(60)] + [(0, 3), (0, 60)]
    ways = dict(zip(pairs, layers(61, pairs).ways, strict=True))
    assert len(ways[0, 3]) == 2
    assert ways[0, 60] is None


def test_a_mask_that_every_layer_reads_is_a_line_to_the_first_and_a_stub_at_the_rest():
    mask, first, last = 0, 2, 13
    layered = [(i, i + 1) for i in range(1, last)]
    shared = [(mask, i) for i in range(first, last + 1)]
    laid = layers(last + 1, [*layered, *shared])
    ways = dict(zip([*layered, *shared], laid.ways, strict=True))
    assert ways[mask, first] == []
    assert [ways[pair] for pair in shared[1:]] == [None] * 11
    # A stub takes no room beside the layers.
    assert max(map(len, laid.rows)) == 2


def test_rows_are_sorted_so_that_lines_do_not_cross():
    pairs = [(0, 5), (1, 4), (2, 3), (3, 6), (4, 6), (5, 6)]
    first, second, _ = layers(7, pairs).rows
    assert [dict(pairs)[child] for child in first] == list(second)


def test_a_tangle_is_laid_out_in_seconds():
    chosen = random.Random(0)
    edges = {(chosen.randrange(max(0, i - 60), i), i) for i in range(1, 5000) for _ in range(2)}
    pairs = sorted(edges | {(5, i) for i in range(11, 5000, 3)})
    start = time.process_time()
    laid = layers(5000, pairs)
    assert time.process_time() - start < 15
    assert sum(map(len, laid.rows)) <= 10 * 5000


def test_the_same_plan_is_the_same_bytes_in_every_process(tmp_path):
    code = (
        "from support.models import plans; from etdev_page.page import Page; import hashlib;"
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
    method = data["plan"]["methods"][0]
    assert method["method"] == data["title"] == data["note"] == plans.HOSTILE
    assert method["ledger"]["entries"][0]["module"] == plans.HOSTILE
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
    told = evolve(plan, methods=(evolve(method, ledger=Ledger((*entries,))),))
    (drawn,) = shown(Page(told))["graphs"]
    assert {box["name"] for box in drawn["boxes"]} >= {*method.delegates, *method.fallback}


def test_a_profile_gives_times_to_boxes_and_a_chart():
    costs = (
        Cost("gpu_0", "delegate", 1, 2.5, 0.9, "gpu"),
        Cost("aten::_softmax.out", "kernel", 2, 0.25),
    )
    profile = Profile("forward", costs, 3, {"gpu_0": 2.5, "softmax_1": 0.125})
    data = shown(Page(plans.chain(2), profile=profile, stages={"edge": 1.25}))
    # The kernel is not a row of its own, since one of its calls is.
    assert [(row["name"], row["ms"], row["reason"]) for row in data["hot"]] == [
        ("gpu_0", 2.5, ""),
        ("softmax_1", 0.125, "gpu: no kernel for softmax; cpu: no-reason"),
    ]
    assert data["times"] == {"gpu_0": 2.5, "softmax_1": 0.125}
    assert data["run"] == {"method": "forward", "ms": 2.75}
    charts = {chart["title"]: chart["bars"] for chart in data["charts"]}
    assert charts["Time of a run"][0] == ["gpu_0", 2.5, "gpu"]
    assert charts["Time of each stage"] == [["edge", 1.25, ""]]
    assert charts["Copied between devices at every run"] == [
        ["cpu to cuda:1", 128, ""],
        ["cuda:1 to cpu", 128, ""],
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
    assert pages["plan"]["plan"] == pages["with"]["plan"] == pages["lower"]["plan"]
    assert pages["plan"]["graphs"] == pages["with"]["graphs"] == pages["lower"]["graphs"]
    (stages,) = [c for c in pages["lower"]["charts"] if c["title"] == "Time of each stage"]
    assert {"export", "to edge", "plan", "compile", "emit"} <= {bar[0] for bar in stages["bars"]}
    assert {chart["title"] for chart in pages["with"]["charts"]} == {
        "What the file holds", "Planned memory by device",
    }  # fmt: skip
    assert pages["without"]["note"].startswith("The file has no ledger")
    (drawn,) = pages["without"]["graphs"]
    kinds = [box["kind"] for box in drawn["boxes"]]
    assert kinds == ["input", "partition", "node", "partition"]
    edges = [(edge["source"], edge["target"]) for edge in drawn["edges"]]
    assert edges == [(0, 1), (1, 2), (2, 3)]
    (method,) = pages["without"]["plan"]["methods"]
    assert method["delegates"] == ["XnnpackBackend #0", "XnnpackBackend #1"]


def test_diff_writes_both_plans_and_their_times(mlp_lowered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mlp_lowered.save("old.pte", with_ledger=True)
    Lowerer([]).lower(*mlp()).save("new.pte", with_ledger=True)
    done = invoke("diff old.pte new.pte --profile --html diff.html")
    if "the runtime writes no trace" in done.stderr:
        pytest.skip("this ExecuTorch's runtime writes no trace, as the wheel of 1.4.1")
    assert done.exit_code == 1
    assert "Times of a run" in done.stdout
    data = json.loads(read((tmp_path / "diff.html").read_text()).texts["data"])
    assert [data["before"]["title"], data["title"]] == ["old.pte", "new.pte"]
    for side, slowest in ((data["before"], "cpu"), (data, "portable")):
        assert slowest in {row["owner"] for row in side["hot"]}
        assert sum(row["share"] for row in side["hot"]) == pytest.approx(1)
    moves = data["changes"]["nodes"]
    # Linear layers stay whole on portable kernels, too.
    assert {move["after"] for move in moves} == {"portable on cpu"}
    nodes = [{e["node"] for e in each["plan"]["methods"][0]["ledger"]["entries"]}
             for each in (data["before"], data)]  # fmt: skip
    for move in moves:
        assert all(node in known for node, known in zip(move["nodes"], nodes, strict=True) if node)


def test_a_page_of_a_run_needs_a_profile(mlp_pte):
    for option in ("--html page.html", "--view node-data=folder"):
        done = invoke(f"run {mlp_pte} {option}")
        assert done.exit_code == 2
        assert "--html and --view need --profile" in done.stderr
