"""The reporter: what a ledger says of nodes, by what it was told."""

from types import SimpleNamespace

from etdev.planner.pinning import Pinning
from etdev.planner.reporter import Reporter, verdict_of
from etdev.schema import reasons
from etdev.schema.claims import Refusal
from etdev.schema.ledger import Verdict


def ledger(reporter, nodes, plugins):
    node = SimpleNamespace(all_input_nodes=(), users=(), meta={})
    graph = SimpleNamespace(
        ops=dict.fromkeys(nodes, "aten.add"), number=dict.fromkeys(nodes, 0), nodes=[node]
    )
    asked = [SimpleNamespace(name=name, builtin=False) for name in plugins]
    return reporter.ledger(graph, asked, Pinning(()), dict.fromkeys(nodes, "float32"))


def test_a_plugin_that_said_nothing_was_silent_or_lost():
    reporter = Reporter()
    reporter.owned("trt", ["a"], "trt_0")
    entries = ledger(reporter, "ab", ["trt", "cpu"])
    lost = Verdict("cpu", "lost", "owned by trt")
    assert entries["a"].verdicts == (Verdict("trt", "claimed"), lost)
    assert entries["b"].verdicts == (Verdict("trt", "silent"), Verdict("cpu", "silent"))
    assert (entries["a"].owner, entries["a"].partition) == ("trt", "trt_0")


def test_the_last_word_of_a_plugin_counts():
    reporter = Reporter()
    reporter.refused("cpu", Refusal("a", "op"))
    reporter.lost(["a"], verdict_of("cpu", reasons.FOREIGN, node="call"))
    (entry,) = ledger(reporter, "a", ["cpu"])
    assert entry.verdicts == (Verdict("cpu", "foreign", "call belongs to a delegate"),)


def test_what_a_plugin_has_after_all_is_not_lost():
    reporter = Reporter()
    reporter.owned("cpu", ["a"], "cpu_0")
    reporter.lost(["a", "b"], verdict_of("cpu", reasons.LOST_GROUP, node="b", owner="trt"))
    entries = ledger(reporter, "ab", ["cpu"])
    assert entries["a"].verdicts == (Verdict("cpu", "claimed"),)
    assert entries["b"].verdicts == (Verdict("cpu", "lost", "lost b to trt"),)


def test_verdicts_are_in_claim_order_and_entries_in_graph_order():
    reporter = Reporter()
    reporter.refused("late", Refusal("a", "op"))
    reporter.refused("early", Refusal("a", "op"))
    entries = ledger(reporter, "ba", ["early", "late"])
    assert [entry.node for entry in entries] == ["b", "a"]
    assert [verdict.plugin for verdict in entries["a"].verdicts] == ["early", "late"]
